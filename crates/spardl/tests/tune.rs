//! Reducers that choose their method: the same on all workers, nothing lost, nothing measured twice.

mod workers;

use std::fs;

use spardl::tune::{Measurement, Space, Tuner};
use spardl::{AUTO, Density, Layout, Options, Reducer, ValueType};

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
        let tuner = Tuner::new().space(exact).factor(1.0).every(1);
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
