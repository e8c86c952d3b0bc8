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
/// assert_eq!(offer("DENES", &names), "did you mean 'dense'? There are spardl, ok-topk, dense");
/// assert_eq!(offer("horovod", &names), "there are spardl, ok-topk, dense");
/// ```
pub fn offer(name: &str, names: &[&str]) -> String {
    let name = name.to_lowercase();
    let likeness = |known: &str| {
        let likeness = strsim::jaro_winkler(&name, known);
        // In short words one slip leaves little that is alike; in the shortest it leaves nothing to go by.
        match known.len() > 2 && strsim::osa_distance(&name, known) == 1 {
            true => likeness.max(ALIKE),
            false => likeness,
        }
    };
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
