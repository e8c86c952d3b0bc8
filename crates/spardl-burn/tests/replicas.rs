//! What holds for the replicas of every small network.

use spardl_burn::{DeviceChoice, build, layout};
use spardl_nets::{BuildError, MODELS, Wants};
use spardl_train::data::Task;
use spardl_train::{Batch, IGNORE, Input, Model, Score};

/// Networks that take a fraction of a second, with a task and a batch for each.
fn small() -> Vec<(&'static str, Task, Batch)> {
    let shape = [1, 28, 28];
    let mnist = Task::Images { shape, classes: 10 };
    let cifar = Task::Images {
        shape: [3, 16, 16],
        classes: 10,
    };
    let reviews = Task::Sequences {
        length: 12,
        vocabulary: 50,
        classes: 2,
    };
    let text = Task::Language {
        length: 12,
        vocabulary: 50,
    };
    vec![
        ("mlp", mnist, images(shape, 10, 4)),
        ("lenet", mnist, images(shape, 10, 4)),
        ("resnet20", cifar, images([3, 16, 16], 10, 4)),
        ("sentiment", reviews, tokens(12, 50, 4, false)),
        ("lstmimdb", reviews, tokens(12, 50, 4, false)),
        ("bert-tiny", text, tokens(12, 50, 2, true)),
        ("lstm", text, tokens(12, 50, 2, true)),
    ]
}

#[test]
fn the_same_seed_gives_the_same_bits_in_threads_that_start_together() {
    for (name, task, _) in small() {
        let parameters = || bits(&parameters(&*replica(name, &task, 5)));
        let (one, two) = std::thread::scope(|scope| {
            let threads = [scope.spawn(parameters), scope.spawn(parameters)];
            let [one, two] = threads.map(|thread| thread.join().unwrap());
            (one, two)
        });
        assert_eq!(one, two, "{name}");
        assert_ne!(
            one,
            bits(&crate::parameters(&*replica(name, &task, 6))),
            "{name}"
        );
    }
}

#[test]
fn two_runs_in_pools_of_one_thread_give_gradients_of_equal_bits() {
    for (name, task, batch) in small() {
        let run = || {
            in_pool(|| {
                let mut model = replica(name, &task, 1);
                let first = gradient(&mut *model, &batch, 7);
                let second = gradient(&mut *model, &batch, 8);
                (bits(&first), bits(&second), bits(&model.buffers()))
            })
        };
        let threads = [0, 1].map(|_| std::thread::scope(|scope| scope.spawn(run).join().unwrap()));
        assert_eq!(threads[0], threads[1], "{name}");
    }
}

#[test]
fn a_few_steps_on_one_batch_reduce_the_loss() {
    for (name, task, batch) in small() {
        let mut model = replica(name, &task, 2);
        let mut values = parameters(&*model);
        let mut gradient = vec![0.0; values.len()];
        let first = model.gradient(&batch, 0, &mut gradient);
        let mut last = first;
        for _ in 0..15 {
            for (value, slope) in values.iter_mut().zip(&gradient) {
                *value -= 0.1 * slope;
            }
            model.set_parameters(&values);
            last = model.gradient(&batch, 0, &mut gradient);
        }
        assert!(
            last.mean_loss() < 0.97 * first.mean_loss(),
            "{name}: {} to {}",
            first.mean_loss(),
            last.mean_loss()
        );
    }
}

#[test]
fn every_large_network_has_the_gradient_of_its_loss() {
    let (shape, classes, length, vocabulary) = ([3, 32, 32], 10, 8, 50);
    for entry in MODELS {
        if entry.name == "bert" || small().iter().any(|(name, ..)| *name == entry.name) {
            continue;
        }
        let (task, batch) = match entry.wants {
            Wants::Images { .. } => (Task::Images { shape, classes }, images(shape, 10, 4)),
            _ => (
                Task::Language { length, vocabulary },
                tokens(length, vocabulary, 2, true),
            ),
        };
        let name = entry.name;
        let mut model = replica(name, &task, 2);
        let mut slopes = vec![0.0; model.layout().len() as usize];
        let before = model.gradient(&batch, 0, &mut slopes).mean_loss();
        for part in model.layout().parts() {
            let mine = &slopes[part.offset as usize..][..part.len()];
            assert!(mine.iter().any(|s| *s != 0.0), "{name}: {}", part.name);
        }
        // A step so short that the loss should fall by 1 % if the gradient is right.
        let square: f64 = slopes.iter().map(|s| f64::from(*s).powi(2)).sum();
        let step = 0.01 * before / square;
        let mut values = parameters(&*model);
        for (value, slope) in values.iter_mut().zip(&slopes) {
            *value -= (step * f64::from(*slope)) as f32;
        }
        model.set_parameters(&values);
        let after = model.gradient(&batch, 0, &mut slopes).mean_loss();
        let fall = (before - after) / (0.01 * before);
        assert!((0.5..1.5).contains(&fall), "{name}: {before} to {after}");
    }
}

#[test]
fn parameters_and_buffers_make_a_replica_the_copy_of_another() {
    for (name, task, batch) in small() {
        let mut old = replica(name, &task, 1);
        gradient(&mut *old, &batch, 0);
        let mut new = replica(name, &task, 2);
        // Something to be overwritten.
        gradient(&mut *new, &batch, 0);
        new.set_parameters(&parameters(&*old));
        new.set_buffers(&old.buffers());
        assert_eq!(bits(&parameters(&*new)), bits(&parameters(&*old)), "{name}");
        assert_eq!(bits(&new.buffers()), bits(&old.buffers()), "{name}");
        assert_eq!(new.evaluate(&batch), old.evaluate(&batch), "{name}");
        let again = gradient(&mut *old, &batch, 3);
        assert_eq!(
            bits(&gradient(&mut *new, &batch, 3)),
            bits(&again),
            "{name}"
        );
        assert_eq!(bits(&new.buffers()), bits(&old.buffers()), "{name}");
    }
}

#[test]
fn running_statistics_follow_every_pass_from_whichever_thread() {
    let (_, task, batch) = small().swap_remove(2);
    let statistics = |threads: bool| {
        let mut model = replica("resnet20", &task, 1);
        for seed in 0..3 {
            if threads {
                std::thread::scope(|scope| {
                    scope.spawn(|| gradient(&mut *model, &batch, seed));
                });
            } else {
                gradient(&mut *model, &batch, seed);
            }
        }
        model.buffers()
    };
    let expected = statistics(false);
    assert!(expected.len() > 100);
    for (one, other) in statistics(true).iter().zip(&expected) {
        assert!((one - other).abs() < 1e-5, "{one} {other}");
    }
}

#[test]
fn evaluating_changes_nothing_and_is_repeatable() {
    for (name, task, batch) in small() {
        let mut model = replica(name, &task, 1);
        let before = (bits(&parameters(&*model)), bits(&model.buffers()));
        let score = model.evaluate(&batch);
        assert_eq!(score, model.evaluate(&batch), "{name}");
        assert_eq!(
            before,
            (bits(&parameters(&*model)), bits(&model.buffers())),
            "{name}"
        );
        assert_eq!(score.count as usize, batch.targets.len(), "{name}");
    }
}

#[test]
fn ignored_targets_do_not_count() {
    for (name, task, batch) in small() {
        if name == "resnet20" {
            continue; // its samples see each other through the statistics of the batch
        }
        let mut model = replica(name, &task, 1);
        let mut some = batch.clone();
        let half = some.targets.len() / 2;
        some.targets[half..].fill(IGNORE);
        let (mut other, mut with, mut without) = (batch.clone(), vec![], vec![]);
        other.targets[..half].fill(IGNORE);
        for (batch, into) in [(&some, &mut with), (&other, &mut without)] {
            *into = gradient(&mut *model, batch, 0);
        }
        let whole = gradient(&mut *model, &batch, 0);
        for ((&one, &two), &both) in with.iter().zip(&without).zip(&whole) {
            assert!((0.5 * (one + two) - both).abs() < 1e-5, "{name}");
        }
        assert_eq!(model.evaluate(&some).count as usize, half, "{name}");
        let mut none = batch.clone();
        none.targets.fill(IGNORE);
        assert!(
            gradient(&mut *model, &none, 0)
                .iter()
                .all(|&slope| slope == 0.0),
            "{name}"
        );
        assert_eq!(model.evaluate(&none), Score::default(), "{name}");
    }
}

#[test]
fn names_are_dotted_unique_and_the_last_layer_comes_first() {
    for (name, task, _) in small() {
        let model = replica(name, &task, 1);
        assert_eq!(*model.layout(), layout(name, &task).unwrap(), "{name}");
        let mut names: Vec<_> = model
            .layout()
            .parts()
            .iter()
            .map(|part| part.name.clone())
            .collect();
        assert!(names[0].ends_with("bias"), "{name}: {}", names[0]);
        names.sort();
        names.dedup();
        assert_eq!(names.len(), model.layout().parts().len(), "{name}");
    }
    let model = replica("resnet20", &small()[2].1, 1);
    let names: Vec<_> = model
        .layout()
        .parts()
        .iter()
        .map(|part| part.name.as_str())
        .collect();
    assert_eq!(names[0], "fc.bias");
    assert_eq!(names[names.len() - 1], "conv1.weight");
    assert!(names.contains(&"layer3.0.conv1.weight"));
    assert!(!names.iter().any(|name| name.contains("running")));
}

#[test]
fn what_does_not_fit_is_refused_in_one_line() {
    let images = Task::Images {
        shape: [1, 8, 8],
        classes: 10,
    };
    let text = Task::Language {
        length: 8,
        vocabulary: 100,
    };
    let refuse = |name: &str, task| {
        let error = build(name, task, 0, &DeviceChoice::default())
            .err()
            .expect("refused");
        let line = error.to_string();
        assert!(!line.contains('\n'), "{line}");
        line
    };
    assert!(refuse("resnet21", &images).contains("mlp, lenet, resnet20"));
    assert!(refuse("resnet20", &text).contains("cifar10"));
    assert!(refuse("lenet", &images).contains("12 x 12"));
    let none = Task::Images {
        shape: [3, 32, 32],
        classes: 0,
    };
    assert_eq!(
        build("resnet20", &none, 0, &DeviceChoice::Flex).err(),
        Some(BuildError::Empty { what: "classes" })
    );
    for entry in MODELS {
        let other = match entry.wants {
            Wants::Images { .. } => &text,
            _ => &images,
        };
        assert!(refuse(entry.name, other).contains(entry.name));
    }
}

fn replica(name: &str, task: &Task, seed: u64) -> Box<dyn Model + Send> {
    build(name, task, seed, &DeviceChoice::Flex).unwrap()
}

fn parameters(model: &dyn Model) -> Vec<f32> {
    let mut values = vec![0.0; model.layout().len() as usize];
    model.parameters(&mut values);
    values
}

fn gradient(model: &mut dyn Model, batch: &Batch, seed: u64) -> Vec<f32> {
    let mut values = vec![0.0; model.layout().len() as usize];
    model.gradient(batch, seed, &mut values);
    values
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn in_pool<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(1)
        .build()
        .unwrap();
    pool.install(work)
}

fn images(shape: [usize; 3], classes: u32, len: usize) -> Batch {
    let pixels = len * shape.iter().product::<usize>();
    Batch {
        len,
        input: Input::Pixels((0..pixels).map(|at| (at as f32 * 1.7).sin()).collect()),
        targets: (0..len as u32).map(|at| at % classes).collect(),
    }
}

fn tokens(length: usize, vocabulary: usize, len: usize, per_token: bool) -> Batch {
    let token =
        |at: usize| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u32 % vocabulary as u32;
    Batch {
        len,
        input: Input::Tokens((0..len * length).map(token).collect()),
        targets: match per_token {
            true => (1..=len * length).map(token).collect(),
            false => (0..len as u32).map(|at| at % 2).collect(),
        },
    }
}
