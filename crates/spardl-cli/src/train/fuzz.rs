//! Any bytes as the configuration of a run.

use super::Args;
use super::args::TrainArgs;
use super::config::Config;
use super::file;
use crate::output;

/// Bytes as the file of --config: refused, or a configuration that is written and read again as it is.
pub(crate) fn configuration(data: &[u8]) -> Result<(), String> {
    let text = str::from_utf8(data).map_err(|error| error.to_string())?;
    let read = |text: &str| {
        let table = file::parse(text)?;
        let config = TrainArgs::default().resolve_over(Some(table));
        config.map_err(|error| request(&error))
    };
    let config = read(text)?;
    let saved = config.to_toml().expect("a configuration can be saved");
    let again = read(&saved).expect("what was saved can be read");
    // Texts, not values: a number that is none is refused below.
    assert_eq!(again.to_toml().ok(), Some(saved), "the same again");
    usable(&config)
}

/// Can these arguments be met, as far as that is known without a file?
pub(crate) fn check(args: &Args) -> anyhow::Result<()> {
    if args.train.config.is_some() {
        return Ok(());
    }
    let config = args.train.resolve()?;
    config.settings(args.train.resume)?;
    config.algorithm().map(drop)
}

fn usable(config: &Config) -> Result<(), String> {
    config.settings(false).map_err(|error| request(&error))?;
    let method = config.algorithm().map_err(|error| request(&error))?;
    assert!(!method.describe().is_empty());
    Ok(())
}

/// What is wrong with a request, for that it must be.
fn request(error: &anyhow::Error) -> String {
    assert_eq!(output::code(error), 2, "{error:#}");
    error.to_string()
}

/// What a run saves, and what is written by hand.
pub(crate) fn examples() -> Vec<Vec<u8>> {
    let hand = [
        "dnn = \"vgg16\"\ndataset = \"cifar10\"\nnworkers = 4\ncompression = true\ncompressor = \"gtopk\"\n",
        "method = \"spardl\"\nteams = 2\nsag = \"b\"\nresidual = \"global-b\"\nvalue-type = \"q4\"\ndensity = \"0:1,2:0.01\"\n",
        "optimiser = \"adamw\"\nbeta2 = 0.99\nlr = 1e-3\nlr-steps = [1.0, 2.5]\nset = [\"ok-topk.preset=vgg\"]\n",
    ];
    let saved = Config::default().to_toml().into_iter();
    let all = saved.chain(hand.map(str::to_owned));
    all.map(String::into_bytes).collect()
}
