//! What to say about a name that does not exist.

/// Names less alike than this are not thought to be meant.
const ALIKE: f64 = 0.8;

/// The name that may have been meant, if one is near, and the names there are.
///
/// ```
/// use spardl_core::offer;
///
/// let names = ["spardl", "ok-topk", "dense"];
/// assert_eq!(offer("oktopk", &names), "did you mean 'ok-topk'? There are spardl, ok-topk, dense");
/// assert_eq!(offer("horovod", &names), "there are spardl, ok-topk, dense");
/// ```
pub fn offer(name: &str, names: &[&str]) -> String {
    let likeness = |known: &str| strsim::jaro_winkler(name, known);
    let nearest = names
        .iter()
        .max_by(|a, b| likeness(a).total_cmp(&likeness(b)))
        .filter(|nearest| likeness(nearest) >= ALIKE);
    let names = names.join(", ");
    nearest.map_or_else(
        || format!("there are {names}"),
        |nearest| format!("did you mean '{nearest}'? There are {names}"),
    )
}
