//! How long a training step takes on one thread:
//! `cargo run --release -p spardl-burn --example step_time -- [model] [batch size] [steps]`; without a model a short list.

#![allow(clippy::print_stdout, reason = "it is what the program is for")]

use std::time::Instant;

use spardl_burn::{DeviceChoice, build};
use spardl_nets::BuildError;
use spardl_train::data::Task;
use spardl_train::{Batch, Input};

const MNIST: Task = Task::Images {
    shape: [1, 28, 28],
    classes: 10,
};
const CIFAR: Task = Task::Images {
    shape: [3, 32, 32],
    classes: 10,
};
const IMDB: Task = Task::Sequences {
    length: 200,
    vocabulary: 20_000,
    classes: 2,
};
const TEXT: Task = Task::Language {
    length: 35,
    vocabulary: 10_000,
};

const LIST: &[(&str, usize)] = &[
    ("lenet", 32),
    ("resnet20", 32),
    ("sentiment", 32),
    ("bert-tiny", 16),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next();
    let size = arguments.next().map(|size| size.parse()).transpose()?;
    let steps = arguments.next().map_or(Ok(10), |steps| steps.parse())?;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build()?;
    println!(
        "{:10} {:>6} {:>12} {:>12}",
        "model", "batch", "ms per step", "samples/s"
    );
    for &(model, usual) in LIST {
        match &name {
            Some(name) => return Ok(pool.install(|| measure(name, size.unwrap_or(32), steps))?),
            None => pool.install(|| measure(model, usual, steps))?,
        }
    }
    Ok(())
}

fn measure(name: &str, size: usize, steps: usize) -> Result<(), BuildError> {
    let task = match name {
        "mlp" | "lenet" => MNIST,
        "sentiment" => IMDB,
        _ if name.starts_with("bert") || name == "lstm" => TEXT,
        _ => CIFAR,
    };
    let mut model = build(name, &task, 1, &DeviceChoice::Flex)?;
    let batch = batch(&task, size);
    let mut values = vec![0.0; model.layout().len() as usize];
    let mut gradient = values.clone();
    model.parameters(&mut values);
    let mut times = Vec::new();
    for step in 0..=steps {
        let start = Instant::now();
        model.gradient(&batch, step as u64, &mut gradient);
        model.set_parameters(&values);
        times.push(start.elapsed().as_secs_f64());
    }
    // The first step warms up; the median is not moved by what else the machine does.
    times.remove(0);
    times.sort_by(f64::total_cmp);
    let median = times[times.len() / 2];
    println!(
        "{name:10} {size:6} {:12.1} {:12.0}",
        1e3 * median,
        size as f64 / median
    );
    Ok(())
}

fn batch(task: &Task, len: usize) -> Batch {
    let (input, targets) = match *task {
        Task::Images { shape, classes } => {
            let pixels = len * shape.iter().product::<usize>();
            let pixels = (0..pixels).map(|at| (at as f32 * 1.7).sin()).collect();
            (
                Input::Pixels(pixels),
                (0..len).map(|at| at % classes).collect(),
            )
        }
        Task::Sequences {
            length,
            vocabulary,
            classes,
        } => (
            tokens(len * length, vocabulary),
            (0..len).map(|at| at % classes).collect(),
        ),
        Task::Language { length, vocabulary } => (
            tokens(len * length, vocabulary),
            (0..len * length)
                .map(|at| at % vocabulary)
                .collect::<Vec<_>>(),
        ),
    };
    Batch {
        len,
        input,
        targets: targets.into_iter().map(|target| target as u32).collect(),
    }
}

fn tokens(len: usize, vocabulary: usize) -> Input {
    Input::Tokens((0..len).map(|at| (at * 7919 % vocabulary) as u32).collect())
}
