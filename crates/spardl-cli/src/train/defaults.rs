//! What was not asked for: numbers with which the network learns the data set.

use spardl_nets::{Entry, MODELS, Recipe};
use toml::{Table, Value};

use super::args::TrainArgs;
use super::config::{Config, WORKERS};
use crate::output::bad_request;

/// The usual learning rate of Adam.
const ADAM_LR: f64 = 0.001;

/// Chooses network and data set where one of them, or both, were not asked for, and gives the options that are not there yet the
/// values of their recipe.
pub(super) fn fill(table: &mut Table) -> anyhow::Result<Recipe> {
    let asked = |name: &str| table.get(name).and_then(Value::as_str);
    let model = match (asked("dnn"), asked("dataset")) {
        (Some(name), _) => spardl_nets::find(name).map_err(bad_request)?,
        (None, dataset) => first_for(dataset),
    };
    let dataset = asked("dataset").unwrap_or(model.recipes[0].dataset);
    let mut recipe = model.recipe(dataset);
    // A rate of one's own stays as it is: the drops belong to that of the recipe.
    if table.contains_key("lr") {
        recipe.lr_drops = &[];
    }
    let is_adam = matches!(asked("optimiser"), Some("adam" | "adamw"));
    // A step of Adam is about as long as its rate, whatever the network.
    let lr = if is_adam { ADAM_LR } else { recipe.lr };
    let size = |size: Option<usize>| size.map(|size| Value::Integer(size as i64));
    let values = [
        ("dnn", Some(model.name.into())),
        ("dataset", Some(dataset.into())),
        ("batch-size", Some(recipe.batch_size.into())),
        ("max-epochs", Some(recipe.epochs.into())),
        ("lr", Some(lr.into())),
        ("lr-factor", Some(recipe.lr_factor.into())),
        ("weight-decay", Some(recipe.weight_decay.into())),
        ("clip", recipe.clip.map(Value::Float)),
        ("image-size", size(recipe.image_size)),
        ("length", size(recipe.length)),
        ("vocabulary", size(recipe.vocabulary)),
    ];
    for (name, value) in values {
        if let Some(value) = value {
            table.entry(name).or_insert(value);
        }
    }
    Ok(recipe)
}

/// The options that are not what they are when only network and data set are asked for, with their values as in a file.
pub(super) fn unusual(config: &Config) -> anyhow::Result<Vec<(String, String)>> {
    let mut usual = TrainArgs::of(&config.dnn, &config.dataset).resolve()?;
    // Whoever asks for the usual number of workers gets nothing unusual.
    if config.workers == Some(WORKERS) {
        usual.workers = config.workers;
    }
    let (usual, table) = (Table::try_from(usual)?, Table::try_from(config)?);
    let differs = |(name, value): &(&String, &Value)| usual.get(*name) != Some(*value);
    let options = table.iter().filter(differs);
    Ok(options
        .map(|(name, value)| (name.clone(), value.to_string()))
        .collect())
}

/// The first network with a recipe for this data set; without one, the first network.
fn first_for(dataset: Option<&str>) -> &'static Entry {
    let knows = |model: &&Entry| model.recipes.iter().any(|r| Some(r.dataset) == dataset);
    MODELS.iter().find(knows).unwrap_or(&MODELS[0])
}

/// The recipe in words, for a list.
pub(super) fn describe(recipe: &Recipe) -> String {
    let Recipe {
        dataset,
        batch_size,
        epochs,
        lr,
        ..
    } = recipe;
    format!("on {dataset}: --lr {lr} --batch-size {batch_size} --max-epochs {epochs}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(flags: &[&str]) -> Config {
        TrainArgs::parse(flags).resolve().expect("valid")
    }

    #[test]
    fn what_was_not_asked_for_suits_the_network_and_its_data() {
        let chosen = |flags: &[&str]| {
            let config = resolve(flags);
            (config.dnn, config.dataset)
        };
        let pair = |dnn: &str, dataset: &str| (dnn.to_owned(), dataset.to_owned());
        assert_eq!(chosen(&[]), pair("mlp", "synthetic"));
        assert_eq!(
            chosen(&["--dnn=bert-tiny"]),
            pair("bert-tiny", "synthetic-text")
        );
        assert_eq!(chosen(&["--dataset=cifar10"]), pair("resnet20", "cifar10"));
        let (small, large) = (resolve(&["--dnn=mlp"]), resolve(&["--dnn=vgg16"]));
        assert_eq!((small.image_size, large.image_size), (None, Some(32)));
        // What was asked for stays, and drops of the rate keep their place in the run.
        let mnist = resolve(&["--dataset=mnist", "--max-epochs=10"]);
        assert_eq!((mnist.lr, mnist.lr_steps), (0.02, Some(vec![8.0])));
        let asked = resolve(&["--dataset=mnist", "--lr=0.5"]);
        assert_eq!((asked.lr, asked.lr_steps), (0.5, Some(vec![])));
        assert_eq!(resolve(&["--optimiser=adamw"]).lr, 0.001);
    }

    #[test]
    fn only_what_is_unlike_the_defaults_is_told() {
        let told = |flags: &[&str]| unusual(&resolve(flags)).expect("valid");
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(told(&[]), []);
        assert_eq!(told(&["--workers=4"]), []);
        assert_eq!(told(&["--dnn=sentiment", "--dataset=imdb"]), []);
        let flags = ["--dnn=vgg16", "--lr=0.5", "--workers=2", "--method=spardl"];
        let told = told(&flags);
        for expected in [
            pair("lr", "0.5"),
            pair("workers", "2"),
            pair("method", "\"spardl\""),
        ] {
            assert!(told.contains(&expected), "{told:?}");
        }
        assert!(
            told.iter().all(|(name, _)| name != "dnn" && name != "seed"),
            "{told:?}"
        );
    }

    #[test]
    fn the_demonstration_s_choice_stays_when_only_workers_method_or_output_change() {
        let plain = resolve(&[]);
        for flags in [
            &["--workers=2"][..],
            &["--compression"],
            &["--method=gtopk"],
        ] {
            let config = Config {
                workers: None,
                method: plain.method.clone(),
                ..resolve(flags)
            };
            assert_eq!(config, plain, "{flags:?}");
        }
    }
}
