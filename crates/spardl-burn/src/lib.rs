//! Networks for `spardl-train`, computed by burn.

#![forbid(unsafe_code)]
