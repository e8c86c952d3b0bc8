//! Findings as lines.

use std::fmt::Write;

use super::Findings;

pub(super) fn describe(found: &Findings) -> String {
    let mut out = String::new();
    let mut line = |name: &str, value: String| {
        writeln!(out, "{name:<10} {value}").expect("strings take everything");
    };
    line("spardl", found.version.to_owned());
    line(
        "launcher",
        match (&found.launcher, &found.launcher_variable) {
            (Some(name), Some(variable)) => format!("{name} ({variable})"),
            _ => "none: started by hand".to_owned(),
        },
    );
    let library = found.mpi_library.as_deref().map_or_else(
        || "built without MPI (cargo build --release -p spardl-cli --features mpi)".to_owned(),
        |library| library.lines().next().unwrap_or_default().to_owned(),
    );
    line("MPI", library);
    if found.mpi_library.is_some() {
        line(
            "ranks",
            found.mpi_ranks.map_or_else(
                || "MPI was not started: no launcher".to_owned(),
                |ranks| ranks.to_string(),
            ),
        );
    }
    for host in &found.hosts {
        let ranks: Vec<String> = host.ranks.iter().map(ToString::to_string).collect();
        line(
            "host",
            format!(
                "{}: ranks {}; {} cores, {}",
                host.name,
                ranks.join(", "),
                host.cores,
                host.simd
            ),
        );
    }
    if let (true, Some(name)) = (found.hosts.is_empty(), &found.host) {
        line("host", name.clone());
    }
    line("cores", found.cores.to_string());
    line("SIMD", found.simd.to_owned());
    for link in &found.links {
        line(
            "link",
            format!(
                "ranks {} - {}: {:.1} us one way, {:.3} GB/s, {} kB at once",
                link.a,
                link.b,
                link.latency_us,
                link.bandwidth_gbs,
                link.burst_bytes / 1000
            ),
        );
    }
    if let Some(all) = &found.together {
        let (latency, rate, at_once) = (all.latency_us, all.bandwidth_gbs, all.burst_bytes / 1000);
        line(
            "together",
            format!(
                "while all ranks send: {latency:.1} us, {rate:.3} GB/s each, {at_once} kB at once"
            ),
        );
        if let Some((bytes, times)) = all.slowest_in_turn() {
            let kilobytes = bytes / 1000;
            line(
                "in turn",
                format!("{kilobytes} kB to another rank every time take {times:.1} times as long"),
            );
        }
    }
    if let Some(crowd) = &found.crowd {
        line(
            "crowd",
            format!(
                "a rank that waits takes {:.0} % of a core; one that works runs {:.0} us at a time",
                100.0 * crowd.waiting,
                crowd.slice_us
            ),
        );
    }
    for warning in &found.warnings {
        line("warning", warning.clone());
    }
    if found.warnings.is_empty() {
        line("warnings", "none".to_owned());
    }
    out
}
