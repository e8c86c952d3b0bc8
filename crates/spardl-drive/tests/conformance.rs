//! The threads transport keeps the rules of all transports.

spardl_drive::transport_suite!(spardl_drive::threads);
