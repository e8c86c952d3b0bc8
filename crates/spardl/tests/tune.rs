//! Reducers that choose their method: the same on all workers, nothing lost, nothing measured twice.

mod workers;

use std::fs;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use spardl::tune::{Gammas, Kind, Measurement, Space, Tuner};
use spardl::{AUTO, Density, Layout, Options, Reducer, ThreadsTransport, Transport, ValueType};
use spardl_core::{Gamma, Inbox, Line, Round, World};
use spardl_drive::{BucketId, Clock, Deadline, TransportError};

use workers::{gradient, on_all};

const LEN: u32 = 3000;

#[test]
fn all_workers_choose_the_same_method_and_get_the_same_bits() {
    for workers in [1, 2, 3] {
        let all = on_all(workers, |rank, transport| {
            let mut reducer = Reducer::builder(AUTO).build(transport, LEN)?;
            let tuning = reducer.tuning().expect("it was chosen");
            let chosen = tuning.best().to_string();
            assert!(tuning.to_string().contains(&chosen), "{tuning}");
            let mut gradient = gradient(rank, 0, LEN);
            reducer.all_reduce(&mut gradient)?;
            Ok((chosen, reducer.method().describe(), gradient))
        });
        assert!(
            all.iter().all(|other| *other == all[0]),
            "{workers} workers"
        );
    }
}

/// Every look finds that steps left what was expected, to the nanosecond: all workers measure and choose again each time.
#[test]
fn choosing_again_at_every_step_loses_nothing_and_all_workers_do_it_together() {
    let all = on_all(3, |rank, transport| {
        // Dense sums of bf16 values round, and keep nothing.
        let exact = Space {
            values: vec![ValueType::F32],
        };
        // What is a hair faster is changed to.
        let tuner = Tuner::new().space(exact).factor(1.0).every(1).margin(0.0);
        let mut reducer = Reducer::builder(AUTO)
            .tuner(tuner)
            .density(0.05)
            .build(transport, LEN)?;
        // Kept and sent: whole numbers, so that sums are exact.
        let (mut sent, mut delivered) = (vec![0.0; LEN as usize], vec![0.0; LEN as usize]);
        for step in 0..6 {
            let gradient = gradient(rank, step, LEN);
            sent.iter_mut().zip(&gradient).for_each(|(s, g)| *s += g);
            reducer.begin(0, &gradient)?;
            reducer.wait()?;
            let mut update = vec![0.0; LEN as usize];
            reducer.update(0).write_scaled(1.0, &mut update);
            delivered.iter_mut().zip(&update).for_each(|(d, u)| *d += u);
            reducer.commit()?;
        }
        let kept = reducer.save().buckets.swap_remove(0).state.residual;
        Ok((sent, delivered, kept))
    });
    for index in 0..LEN as usize {
        let sent: f32 = all.iter().map(|(sent, ..)| sent[index]).sum();
        let kept: f32 = all.iter().filter_map(|(.., kept)| kept.get(index)).sum();
        assert_eq!(sent, all[0].1[index] + kept, "element {index}");
    }
    assert!(all.iter().all(|(_, delivered, _)| *delivered == all[0].1));
}

#[test]
fn changing_the_method_keeps_what_waits_also_where_the_new_one_keeps_nothing() {
    let all = on_all(2, |rank, transport| {
        let mut reducer = Reducer::builder("spardl")
            .density(0.01)
            .build(transport, LEN)?;
        let mut first = gradient(rank, 0, LEN);
        reducer.all_reduce(&mut first)?;
        let whole = spardl::registry::build("dense", &Options::default())?;
        reducer.change_method(whole)?;
        let mut second = gradient(rank, 1, LEN);
        reducer.all_reduce(&mut second)?;
        first.iter_mut().zip(second).for_each(|(a, b)| *a += b);
        Ok(first)
    });
    for (index, value) in all[0].iter().enumerate() {
        let sent = |rank, step| gradient(rank, step, LEN)[index];
        let sum = sent(0, 0) + sent(1, 0) + sent(0, 1) + sent(1, 1);
        assert_eq!(*value, sum / 2.0, "element {index}");
    }
}

/// The same number between -1 and 1 for the same seed and name.
fn noise(seed: u64, name: &str) -> f64 {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325 ^ seed << 8, mix);
    (hash >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
}

/// Costs of local work as another measurement may find them, all within 4 % of the usual ones.
fn measured_again(seed: u64) -> Gammas {
    let mut gammas = Gammas::usual();
    for (name, gamma) in &mut gammas.measured {
        let times = 1.0 + 0.04 * noise(seed, name);
        gamma.select = (gamma.select as f64 * times) as u64;
        gamma.merge = (gamma.merge as f64 * times) as u64;
    }
    gammas
}

#[test]
fn noise_within_the_margin_never_changes_the_choice_and_a_real_change_does() {
    let layouts = [Layout::flat(1_000_000)];
    let at = (layouts.as_slice(), Density::new(0.01).expect("a density"));
    // Here a few methods take about the same.
    let line = Line {
        latency: 10_000,
        bandwidth: 5_000_000_000,
    };
    let decide = |tuner: &Tuner, gammas: &Gammas| {
        let tuning = tuner.decide(4, at, line, gammas);
        tuning.expect("a choice")
    };
    let first = decide(&Tuner::new(), &Gammas::usual()).best().clone();
    let (mut flips, mut current) = (0, first.clone());
    for seed in 1..200 {
        let gammas = measured_again(seed);
        let free = decide(&Tuner::new(), &gammas).best().to_string();
        let staying = decide(&Tuner::new().stay_with(current), &gammas);
        assert_eq!(staying.best().to_string(), first.to_string());
        let words = staying.in_words();
        let is_flip = free != first.to_string();
        assert_eq!(
            words.contains(&format!("and {free} is not so much faster")),
            is_flip,
            "{words}"
        );
        flips += u32::from(is_flip);
        current = staying.best().clone();
    }
    assert!(flips > 20, "without a margin {flips} of 199 looks flip");
    // Merging takes SparDL twice as long from now on.
    let mut changed = Gammas::usual();
    let spardl = changed
        .measured
        .iter_mut()
        .filter(|(name, _)| name.starts_with("spardl"));
    spardl.for_each(|(_, gamma)| gamma.merge *= 2);
    let left = decide(&Tuner::new().stay_with(current), &changed);
    let free = decide(&Tuner::new(), &changed);
    assert_eq!(left.best().to_string(), free.best().to_string());
    assert_ne!(left.best().method(), first.method());
}

/// Threads that take a time for every byte they send.
struct Slow {
    inner: ThreadsTransport,
    per_byte: Duration,
}

impl Transport for Slow {
    fn world(&self) -> World {
        self.inner.world()
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.inner.clock()
    }

    fn submit(&mut self, bucket: BucketId, round: Round) -> Result<(), TransportError> {
        let bytes: usize = round.sends.iter().map(|send| send.payload.wire_len()).sum();
        thread::sleep(self.per_byte * bytes as u32);
        self.inner.submit(bucket, round)
    }

    fn poll(&mut self) -> Result<Option<(BucketId, Inbox<'_>)>, TransportError> {
        self.inner.poll()
    }

    fn wait_any(
        &mut self,
        deadline: Deadline,
    ) -> Result<Option<(BucketId, Inbox<'_>)>, TransportError> {
        self.inner.wait_any(deadline)
    }

    fn complete_step(&mut self) {
        self.inner.complete_step();
    }

    fn abandon(&mut self) {
        self.inner.abandon();
    }
}

#[test]
fn a_reducer_leaves_its_method_for_one_that_is_faster_by_the_margin_and_for_no_other() {
    let layouts = [Layout::flat(LEN)];
    let density = Density::new(0.01).expect("a density");
    // Bytes cost nothing and lists very much: so it begins with a dense exchange.
    let (free, dear) = (
        Gamma::default(),
        Gamma {
            select: 1_000_000,
            merge: 1_000_000,
        },
    );
    let gammas = Gammas {
        dense: free,
        ..Gammas::alike(dear)
    };
    let line = Line {
        latency: 0,
        bandwidth: u64::MAX,
    };
    let methods = |margin: f64| {
        on_all(2, |rank, inner| {
            let tuner = Tuner::new().factor(1.0).every(1).margin(margin);
            let chosen = tuner.decide(2, (&layouts, density), line, &gammas)?;
            assert_eq!(chosen.best().kind(), Kind::Dense);
            let per_byte = Duration::from_nanos(200);
            let mut reducer = Reducer::with_choice(tuner, chosen)
                .density(density.get())
                .build_for(Slow { inner, per_byte }, layouts.to_vec())?;
            for step in 0..3 {
                let mut gradient = gradient(rank, step, LEN);
                reducer.all_reduce(&mut gradient)?;
            }
            let best = reducer.tuning().expect("it chooses").best();
            assert_eq!(best.algorithm().describe(), reducer.method().describe());
            Ok(best.kind())
        })
    };
    assert_eq!(methods(0.1), [Kind::Sparse; 2]);
    assert_eq!(methods(f64::INFINITY), [Kind::Dense; 2]);
}

#[test]
fn what_was_measured_is_kept_for_the_same_conditions_only() {
    let dir = std::env::temp_dir().join(format!("spardl-tune-{}", std::process::id()));
    let file = dir.join("tunings.json");
    let tune = |density: f64, host: &str| {
        let all = on_all(2, |_, mut transport| {
            let tuner = Tuner::new().cache(&file).host(host);
            let layouts = [Layout::flat(LEN)];
            tuner.tune(&mut transport, &layouts, Density::new(density)?)
        });
        let first = &all[0];
        assert!(
            all.iter()
                .all(|t| t.best().to_string() == first.best().to_string())
        );
        assert_eq!(first.note(), None);
        first.clone()
    };
    let first = tune(0.01, "a");
    assert!(!first.is_cached());
    let again = tune(0.01, "a");
    assert!(again.is_cached() && again.measured() == first.measured());
    assert_eq!(again.best().to_string(), first.best().to_string());
    assert!(!tune(0.02, "a").is_cached() && !tune(0.01, "b").is_cached());
    assert!(tune(0.01, "a").is_cached(), "others did not take its place");
    let text = first.measured().to_json();
    let read = Measurement::from_json(text.as_bytes()).expect("its own text");
    assert_eq!(&read, first.measured());
    fs::remove_dir_all(&dir).expect("it was made");
}

#[test]
fn a_file_that_is_no_cache_is_left_alone_and_told() {
    let dir = std::env::temp_dir().join(format!("spardl-no-cache-{}", std::process::id()));
    fs::create_dir_all(&dir).expect("a directory");
    let file = dir.join("thesis.txt");
    fs::write(&file, "years of work").expect("written");
    let all = on_all(2, |_, mut transport| {
        let tuner = Tuner::new().cache(&file);
        tuner.tune(&mut transport, &[Layout::flat(LEN)], Density::new(0.01)?)
    });
    let note = all[0].note().expect("a complaint");
    assert!(note.contains("no cache of tunings"), "{note}");
    assert_eq!(fs::read(&file).expect("still there"), b"years of work");
    fs::remove_dir_all(&dir).expect("it was made");
}

#[test]
fn what_cannot_be_chosen_is_refused_with_what_can() {
    on_all(2, |_, mut transport| {
        let options = Options::default().with("teams", 2);
        let builder = Reducer::builder(AUTO).options(options);
        let error = builder.build(&mut transport, LEN).expect_err("refused");
        assert!(
            error.is_config() && error.to_string().contains("name one"),
            "{error}"
        );
        let none = Space { values: Vec::new() };
        let tuner = Tuner::new().space(none);
        let tuned = tuner.tune(&mut transport, &[Layout::flat(LEN)], Density::new(0.01)?);
        let error = tuned.expect_err("refused").to_string();
        assert!(error.contains("add f32 or bf16"), "{error}");
        Ok(())
    });
    assert!(Measurement::from_json(b"{}").is_err());
    let few = Space {
        values: vec![ValueType::Q4],
    };
    let names: Vec<String> = few
        .choices(4)
        .expect("choices")
        .iter()
        .map(|c| c.to_string())
        .collect();
    assert!(names.iter().all(|name| name.contains("-q4")), "{names:?}");
}
