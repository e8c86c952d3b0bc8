//! What a reducer does with its buckets, steps and settings.

mod workers;

use std::time::Duration;

use spardl::{
    Error, Layout, OnNonFinite, Op, Outcome, Reducer, Restored, ThreadsTransport, Transport,
    Update, registry, run_workers,
};

use workers::{gradient, on_all};

const LENGTHS: [u32; 3] = [300, 40, 1000];

fn layouts() -> Vec<Layout> {
    LENGTHS.map(Layout::flat).to_vec()
}

#[test]
fn a_density_that_is_none_is_refused_at_the_start_and_later() {
    on_all(2, |_, mut transport| {
        for density in [1.5, -0.1, f64::NAN] {
            let builder = Reducer::builder("spardl").density(density);
            let error = builder.build(&mut transport, 10).expect_err("refused");
            assert!(error.is_config() && error.to_string().contains("from 0 to 1"));
        }
        let mut reducer = Reducer::builder("spardl").build(transport, 10)?;
        assert!(reducer.set_density(f64::NAN).is_err());
        assert_eq!(reducer.density().get(), 0.01, "nothing changed");
        reducer.set_density(0.5)
    });
}

#[test]
fn a_small_bucket_sends_at_least_one_entry() {
    let nnz = on_all(3, |rank, transport| {
        let mut reducer = Reducer::builder("topk-a")
            .density(0.01)
            .build(transport, 50)?;
        Ok(reducer.all_reduce(&mut gradient(rank, 0, 50))?.nnz)
    });
    assert!(nnz.iter().all(|nnz| *nnz >= 1), "{nnz:?}");
}

#[test]
fn buckets_begun_one_by_one_give_what_they_give_together_for_every_method() {
    for entry in registry::METHODS {
        on_all(3, |rank, mut transport| {
            let together = |transport: &mut ThreadsTransport| {
                let builder = Reducer::builder(entry.name).density(0.05);
                let mut reducer = builder.build_for(transport, layouts())?;
                let mut all = Vec::new();
                for step in 0..3 {
                    all = LENGTHS
                        .iter()
                        .flat_map(|len| gradient(rank, step, *len))
                        .collect();
                    reducer.all_reduce(&mut all)?;
                }
                Ok::<_, Error>((all, reducer.save()))
            };
            let apart = |transport: &mut ThreadsTransport| {
                let builder = Reducer::builder(entry.name).density(0.05);
                let mut reducer = builder.build_for(transport, layouts())?;
                let mut all = vec![f32::NAN; reducer.len()];
                for step in 0..3 {
                    for bucket in [2, 0, 1] {
                        reducer.begin(bucket, &gradient(rank, step, LENGTHS[bucket]))?;
                    }
                    reducer.wait()?;
                    reducer.commit()?;
                    for bucket in 0..reducer.buckets() {
                        reducer.write_update(bucket, &mut all[reducer.range(bucket)]);
                    }
                }
                Ok::<_, Error>((all, reducer.save()))
            };
            assert_eq!(
                together(&mut transport)?,
                apart(&mut transport)?,
                "{}",
                entry.name
            );
            Ok(())
        });
    }
}

#[test]
fn a_discarded_step_leaves_all_residuals_as_they_were() {
    on_all(3, |rank, transport| {
        let mut reducer = Reducer::builder("spardl").build_for(transport, layouts())?;
        let mut all: Vec<f32> = LENGTHS
            .iter()
            .flat_map(|len| gradient(rank, 0, *len))
            .collect();
        reducer.all_reduce(&mut all)?;
        let before = reducer.save();
        for (bucket, len) in LENGTHS.into_iter().enumerate() {
            reducer.begin(bucket, &gradient(rank, 1, len))?;
        }
        let report = reducer.wait()?;
        assert!(report.nnz > 0, "there was an update to read");
        reducer.discard();
        let after = reducer.save();
        assert_eq!(before.buckets, after.buckets);
        assert_eq!(after.step, 2, "it counts as a step");
        for bucket in 0..reducer.buckets() {
            assert_eq!(reducer.update(bucket).nnz(), 0);
        }
        Ok(())
    });
}

#[test]
fn nan_in_one_bucket_of_one_worker_does_what_was_asked_for() {
    let outcomes = |policy| {
        on_all(2, |rank, transport| {
            let builder = Reducer::builder("spardl").on_non_finite(policy);
            let mut reducer = builder.build_for(transport, layouts())?;
            for (bucket, len) in LENGTHS.into_iter().enumerate() {
                let mut gradient = gradient(rank, 0, len);
                if (rank, bucket) == (1, 1) {
                    gradient[3] = f32::INFINITY;
                }
                reducer.begin(bucket, &gradient)?;
            }
            let report = match reducer.wait() {
                Ok(report) => report,
                Err(error) => {
                    assert!(error.is_non_finite() && !error.is_peer_fault());
                    // Everything is as before the step: the next one may begin.
                    let mut all = vec![1.0; reducer.len()];
                    let report = reducer.all_reduce(&mut all)?;
                    assert!(report.outcome == Outcome::Updated && reducer.step() == 1);
                    return Ok(None);
                }
            };
            assert!(matches!(report.outcome, Outcome::Skipped(_)));
            let entries: Vec<bool> = (0..3)
                .map(|bucket| reducer.update(bucket).nnz() > 0)
                .collect();
            reducer.commit()?;
            Ok(Some((
                entries,
                reducer.residual(0).iter().any(|value| *value != 0.0),
            )))
        })
    };
    let some = |entries: [bool; 3], kept| Some((entries.to_vec(), kept));
    let (bucket, step) = (some([true, false, true], true), some([false; 3], false));
    assert_eq!(outcomes(OnNonFinite::SkipBucket), [bucket.clone(), bucket]);
    assert_eq!(outcomes(OnNonFinite::SkipStep), [step.clone(), step]);
    assert_eq!(outcomes(OnNonFinite::Raise), [None, None]);
}

#[test]
fn a_call_out_of_turn_is_the_caller_s_mistake_and_changes_nothing() {
    on_all(2, |rank, transport| {
        let mut reducer = Reducer::builder("spardl").build_for(transport, layouts())?;
        let wrong = |result: Result<(), Error>, expected: &str| {
            let error = result.expect_err(expected);
            assert!(error.is_config() && !error.is_peer_fault(), "{error}");
            assert!(error.to_string().contains(expected), "{error}");
        };
        wrong(reducer.commit(), "commit");
        wrong(reducer.begin(3, &[]), "no bucket 3");
        wrong(reducer.all_reduce(&mut [0.0; 7]).map(|_| ()), "7 elements");
        reducer.begin(0, &gradient(rank, 0, LENGTHS[0]))?;
        wrong(reducer.begin(0, &gradient(rank, 0, LENGTHS[0])), "begin");
        wrong(reducer.commit(), "commit");
        reducer.begin(1, &gradient(rank, 0, LENGTHS[1]))?;
        reducer.begin(2, &gradient(rank, 0, LENGTHS[2]))?;
        reducer.wait()?;
        wrong(reducer.begin(0, &gradient(rank, 0, LENGTHS[0])), "begin");
        reducer.commit()
    });
}

fn is_dense<T: Transport>(reducer: &Reducer<T>) -> bool {
    matches!(reducer.update(0), Update::Dense(_))
}

#[test]
fn the_warm_up_is_dense_and_ends_by_itself_or_when_told() {
    on_all(3, |rank, mut transport| {
        let builder = Reducer::builder("spardl").op(Op::Sum).dense_steps(2);
        let mut reducer = builder.clone().build(&mut transport, 400)?;
        let mut kinds = Vec::new();
        for step in 0..4 {
            reducer.all_reduce(&mut gradient(rank, step, 400))?;
            kinds.push((is_dense(&reducer), reducer.is_warming_up()));
        }
        assert_eq!(
            kinds,
            [(true, true), (true, true), (false, false), (false, false)]
        );
        let mut reducer = builder.build(&mut transport, 400)?;
        reducer.all_reduce(&mut gradient(rank, 0, 400))?;
        reducer.end_warm_up()?;
        reducer.all_reduce(&mut gradient(rank, 1, 400))?;
        assert!(!is_dense(&reducer) && reducer.step() == 2);
        Ok(())
    });
}

#[test]
fn an_algorithm_of_one_s_own_is_used_like_a_named_one() {
    on_all(2, |rank, mut transport| {
        let mut named = Reducer::builder("gtopk").build(&mut transport, 100)?;
        let mut expected = gradient(rank, 0, 100);
        named.all_reduce(&mut expected)?;
        drop(named);
        let algorithm = registry::build("gtopk", &spardl::Options::default())?;
        let mut own = Reducer::with_algorithm(algorithm).build(transport, 100)?;
        let mut got = gradient(rank, 0, 100);
        own.all_reduce(&mut got)?;
        assert_eq!(got, expected);
        Ok(())
    });
}

#[test]
fn a_peer_that_is_gone_is_its_fault_and_named() {
    let errors = run_workers(2, |transport| {
        let rank = transport.world().rank().get();
        let builder = Reducer::builder("dense").timeout(Duration::from_secs(60));
        let mut reducer = builder.build(transport, 10).expect("valid");
        match rank {
            1 => None,
            _ => reducer.all_reduce(&mut [1.0; 10]).err(),
        }
    });
    let errors = errors.expect("no panic");
    let error = errors[0].as_ref().expect("its peer was gone");
    assert!(error.is_peer_fault() && error.is_secondary() && !error.is_config());
    assert_eq!(error.peer().map(|peer| peer.get()), Some(1));
}

#[test]
fn a_saved_residual_goes_on_in_other_buckets_and_with_another_method() {
    on_all(2, |rank, mut transport| {
        let len = LENGTHS.iter().sum();
        let mut first = Reducer::builder("spardl").build(&mut transport, len)?;
        first.all_reduce(&mut gradient(rank, 0, len))?;
        let residual = first.residual(0).to_vec();
        let saved = first.save();
        drop(first);
        let mut restored = |method: &str, layouts| {
            let mut reducer = Reducer::builder(method).build_for(&mut transport, layouts)?;
            let restored = reducer.restore(&saved)?;
            let buckets = 0..reducer.buckets();
            let all: Vec<f32> = buckets.flat_map(|b| reducer.residual(b).to_vec()).collect();
            assert_eq!(reducer.step(), 1);
            Ok::<_, Error>((restored, all))
        };
        let flat = || vec![Layout::flat(len)];
        assert_eq!(
            restored("spardl", flat())?,
            (Restored::Exact, residual.clone())
        );
        let cut = (Restored::Residual, residual);
        assert_eq!(restored("spardl", layouts())?, cut);
        assert_eq!(restored("ok-topk", flat())?, cut);
        assert_eq!(restored("dense", flat())?, (Restored::Residual, Vec::new()));
        Ok(())
    });
}

/// One worker goes on from where the others do not: all of them end, with the cause, and nothing is committed.
#[test]
fn workers_restored_from_different_steps_refuse_each_other() {
    for method in ["ok-topk", "exdyna", "micro", "power-sgd"] {
        let errors = on_all(3, |rank, mut transport| {
            let build = || Reducer::builder(method).timeout(Duration::from_secs(60));
            let mut first = build().build(&mut transport, 1000)?;
            first.all_reduce(&mut gradient(rank, 0, 1000))?;
            let early = first.save();
            first.all_reduce(&mut gradient(rank, 1, 1000))?;
            let mut late = first.save();
            drop(first);
            if rank == 1 {
                // The step is what a caller would see; what the method keeps is not.
                late.buckets[0].state.method = early.buckets[0].state.method.clone();
            }
            let mut again = build().build(transport, 1000)?;
            again.restore(&late)?;
            let error = again.all_reduce(&mut gradient(rank, 2, 1000));
            let error = error.expect_err("one differs from the others");
            assert!(error.is_peer_fault(), "{error}");
            assert_eq!(again.save(), late, "nothing was committed");
            Ok(error)
        });
        let causes = errors.iter().filter(|error| !error.is_secondary());
        let mut causes = causes.map(ToString::to_string).peekable();
        assert!(causes.peek().is_some(), "{method}: {errors:?}");
        for cause in causes {
            let words = "comes from another state of the method: restore all ranks";
            assert!(cause.contains(words), "{method}: {cause}");
        }
    }
}

#[test]
fn a_state_of_another_gradient_is_refused() {
    on_all(1, |_, mut transport| {
        let saved = Reducer::builder("spardl").build(&mut transport, 10)?.save();
        let mut other = Reducer::builder("spardl").build_for(transport, layouts())?;
        let error = other.restore(&saved).expect_err("10 elements, not 1340");
        assert!(
            error.is_config() && error.to_string().contains("is 10, expected 1340"),
            "{error}"
        );
        Ok(())
    });
}

#[test]
fn what_waits_goes_out_at_once_with_a_method_that_keeps_nothing() {
    let workers = 3;
    let (len, plain) = (40, |rank: u32, step| gradient(rank, step, 40));
    let ended = on_all(workers, |rank, mut transport| {
        let sum = |method: &str| Reducer::builder(method).density(0.1).op(Op::Sum);
        let mut sparse = sum("spardl").build(&mut transport, len)?;
        sparse.all_reduce(&mut plain(rank, 0))?;
        let residual = sparse.residual(0).to_vec();
        let saved = sparse.save();
        drop(sparse);
        let mut dense = sum("dense").build(&mut transport, len)?;
        assert_eq!(dense.restore(&saved)?, Restored::Residual);
        // Nothing is lost by a step that is taken back, or by stopping before the next one.
        dense.begin(0, &plain(rank, 9))?;
        dense.wait()?;
        dense.discard();
        assert_eq!(dense.save().buckets[0].state.residual, residual);
        let again = dense.save();
        assert_eq!(dense.restore(&again)?, Restored::Exact);
        let (mut first, mut second) = (plain(rank, 1), plain(rank, 2));
        dense.all_reduce(&mut first)?;
        dense.all_reduce(&mut second)?;
        assert!(dense.save().buckets[0].state.residual.is_empty());
        Ok((residual, first, second))
    });
    let total = |values: &dyn Fn(u32) -> Vec<f32>| -> Vec<f32> {
        let all: Vec<Vec<f32>> = (0..workers).map(values).collect();
        (0..len as usize)
            .map(|i| all.iter().map(|values| values[i]).sum())
            .collect()
    };
    // Integers: sums are exact in any order.
    let waited = total(&|rank| ended[rank as usize].0.clone());
    assert!(waited.iter().any(|value| *value != 0.0));
    let delivered: Vec<f32> = total(&|rank| plain(rank, 1))
        .iter()
        .zip(&waited)
        .map(|(gradient, waited)| gradient + waited)
        .collect();
    for (_, first, second) in &ended {
        assert_eq!(first, &delivered);
        assert_eq!(second, &total(&|rank| plain(rank, 2)));
    }
}
