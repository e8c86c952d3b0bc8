//! Plain training of one replica on one thread, to see how a network learns a data set:
//! `cargo run --release -p spardl-burn --example learn -- sentiment imdb data 1.0 32 3 [tokens] [samples]`
//! (model, data set, its directory, learning rate, batch size, epochs, tokens of a sequence, samples to learn from).
//! SGD with momentum 0.9; the learning rate falls to zero along half a cosine.

#![allow(clippy::print_stdout, reason = "it is what the program is for")]

use std::time::Instant;

use spardl_burn::{DeviceChoice, build};
use spardl_train::data::{Data, Dataset, Request, open};
use spardl_train::{Model, Score};

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, set, dir, rate, size, epochs, rest @ ..] = &arguments[..] else {
        return Err(
            "expected: model, data set, directory, learning rate, batch size, epochs".into(),
        );
    };
    let number = |at: usize| rest.get(at).map(|number| number.parse()).transpose();
    let request = Request {
        dir: Some(dir.into()),
        length: number(0)?,
        train_samples: number(1)?,
        vocabulary: number(2)?,
        ..Request::default()
    };
    let data = open(set, &request)?;
    let model = build(model, &data.task, 1, &DeviceChoice::Flex)?;
    let (rate, size, epochs) = (rate.parse()?, size.parse()?, epochs.parse()?);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build()?;
    pool.install(|| learn(model, &data, rate, size, epochs))
}

fn learn(
    mut model: Box<dyn Model + Send>,
    data: &Data,
    rate: f64,
    size: usize,
    epochs: usize,
) -> Result<(), Failure> {
    let n = model.layout().len() as usize;
    println!(
        "{n} parameters, {} + {} samples",
        data.train.len(),
        data.test.len()
    );
    let (mut values, mut gradient, mut velocity) = (vec![0.0; n], vec![0.0; n], vec![0.0f32; n]);
    model.parameters(&mut values);
    let steps = data.train.len() / size;
    for epoch in 0..epochs {
        let start = Instant::now();
        let mut score = Score::default();
        let order = shuffled(data.train.len() as u32, epoch as u64);
        for (step, samples) in order.chunks_exact(size).enumerate() {
            let done = (epoch * steps + step) as f64 / (epochs * steps) as f64;
            let rate = (0.5 * rate * (1.0 + (std::f64::consts::PI * done).cos())) as f32;
            let seed = (epoch * steps + step) as u64;
            score += model.gradient(&data.train.batch(samples, Some(seed))?, seed, &mut gradient);
            for ((value, velocity), slope) in values.iter_mut().zip(&mut velocity).zip(&gradient) {
                *velocity = 0.9 * *velocity + slope;
                *value -= rate * *velocity;
            }
            model.set_parameters(&values);
        }
        let seconds = start.elapsed().as_secs_f64();
        let test = evaluate(&mut *model, &*data.test, size)?;
        println!(
            "epoch {epoch}: loss {:.4}, accuracy {:.4}; test loss {:.4}, accuracy {:.4}; {seconds:.1} s",
            score.mean_loss(),
            score.accuracy(),
            test.mean_loss(),
            test.accuracy(),
        );
    }
    Ok(())
}

fn evaluate(model: &mut dyn Model, test: &dyn Dataset, size: usize) -> Result<Score, Failure> {
    let all: Vec<u32> = (0..test.len() as u32).collect();
    let mut score = Score::default();
    for samples in all.chunks(size) {
        score += model.evaluate(&test.batch(samples, None)?);
    }
    Ok(score)
}

fn shuffled(len: u32, epoch: u64) -> Vec<u32> {
    let mut order: Vec<u32> = (0..len).collect();
    order.sort_by_key(|&sample| sample_key(sample, epoch));
    order
}

/// A number that looks random.
fn sample_key(sample: u32, epoch: u64) -> u64 {
    let mut key = (u64::from(sample) << 20 | epoch).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    key ^= key >> 29;
    key = key.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    key ^ key >> 32
}
