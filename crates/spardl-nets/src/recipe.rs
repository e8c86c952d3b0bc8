//! What a network learns a data set with, unless something else is asked for.

/// A way to learn a data set that is known to work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recipe {
    /// The data set.
    pub dataset: &'static str,
    /// Samples of a worker's step.
    pub batch_size: u32,
    /// Passes over the data.
    pub epochs: u32,
    /// The learning rate, of SGD with momentum 0.9.
    pub lr: f64,
    /// The parts of the run after which the rate is multiplied by `lr_factor`.
    pub lr_drops: &'static [f64],
    /// See `lr_drops`.
    pub lr_factor: f64,
    /// Weight decay.
    pub weight_decay: f64,
    /// The longest a worker's gradient may be.
    pub clip: Option<f64>,
    /// Rows and columns of an image, where they can be chosen.
    pub image_size: Option<usize>,
    /// Tokens of a sequence.
    pub length: Option<usize>,
    /// How many token numbers there may be.
    pub vocabulary: Option<usize>,
}

impl Recipe {
    /// A recipe with the usual numbers, to be changed where they do not do.
    pub(crate) const fn of(dataset: &'static str) -> Self {
        Self {
            dataset,
            batch_size: 16,
            epochs: 10,
            lr: 0.02,
            lr_drops: &[],
            lr_factor: 0.1,
            weight_decay: 1e-4,
            clip: None,
            image_size: None,
            length: None,
            vocabulary: None,
        }
    }
}

const GENERATED: Recipe = Recipe::of("synthetic");
const MNIST: Recipe = Recipe {
    epochs: 5,
    lr_drops: &[0.8],
    ..Recipe::of("mnist")
};
const CIFAR: Recipe = Recipe {
    epochs: 20,
    lr: 0.03,
    lr_drops: &[0.5, 0.8],
    ..Recipe::of("cifar10")
};

/// Perceptrons: a step is short, so that many epochs are a matter of seconds.
pub(crate) const MLP: &[Recipe] = &[
    Recipe {
        epochs: 20,
        ..GENERATED
    },
    MNIST,
];

/// Small convolutions without normalisation.
pub(crate) const LENET: &[Recipe] = &[
    Recipe {
        epochs: 5,
        ..GENERATED
    },
    MNIST,
];

/// Residual networks for small photographs.
pub(crate) const CIFAR_RESNET: &[Recipe] = &[
    Recipe {
        epochs: 2,
        lr: 0.05,
        ..GENERATED
    },
    CIFAR,
    Recipe {
        dataset: "cifar100",
        ..CIFAR
    },
];

/// Deep networks whose smallest image has 32 rows.
pub(crate) const DEEP: &[Recipe] = &[
    Recipe {
        epochs: 2,
        image_size: Some(32),
        ..GENERATED
    },
    CIFAR,
    Recipe {
        dataset: "cifar100",
        ..CIFAR
    },
];

/// Networks for large photographs.
pub(crate) const IMAGENET: &[Recipe] = &[
    Recipe {
        batch_size: 8,
        epochs: 2,
        image_size: Some(64),
        ..GENERATED
    },
    Recipe {
        batch_size: 32,
        epochs: 90,
        lr: 0.1,
        lr_drops: &[0.33, 0.67, 0.89],
        ..Recipe::of("imagenet")
    },
];

/// The published classifier of reviews, as published where the reviews are real.
pub(crate) const LSTMIMDB: &[Recipe] = &[
    Recipe {
        epochs: 5,
        lr: 0.3,
        weight_decay: 0.0,
        ..Recipe::of("synthetic-reviews")
    },
    Recipe {
        batch_size: 1,
        epochs: 31,
        lr: 0.3,
        lr_drops: &[0.32, 0.65, 0.97],
        length: Some(500),
        vocabulary: Some(50_001),
        ..Recipe::of("imdb")
    },
];

/// Classifiers of reviews.
pub(crate) const REVIEWS: &[Recipe] = &[
    Recipe {
        epochs: 3,
        lr: 0.3,
        weight_decay: 0.0,
        ..Recipe::of("synthetic-reviews")
    },
    Recipe {
        batch_size: 8,
        epochs: 3,
        lr: 1.0,
        lr_drops: &[0.5, 0.75],
        lr_factor: 0.3,
        weight_decay: 0.0,
        length: Some(200),
        vocabulary: Some(20_000),
        ..Recipe::of("imdb")
    },
];

const TEXT: Recipe = Recipe {
    batch_size: 8,
    lr: 0.5,
    lr_drops: &[0.5, 0.75],
    lr_factor: 0.3,
    weight_decay: 0.0,
    clip: Some(0.25),
    ..Recipe::of("text")
};

/// Language models with a memory.
pub(crate) const LSTM: &[Recipe] = &[
    Recipe {
        dataset: "synthetic-text",
        epochs: 1,
        ..TEXT
    },
    TEXT,
    Recipe {
        dataset: "wikitext",
        ..TEXT
    },
];

const MASKED: Recipe = Recipe {
    lr: 0.1,
    clip: Some(1.0),
    ..TEXT
};

/// Masked language models.
pub(crate) const BERT: &[Recipe] = &[
    Recipe {
        epochs: 5,
        lr: 0.3,
        length: Some(32),
        ..Recipe {
            dataset: "synthetic-text",
            ..MASKED
        }
    },
    MASKED,
    Recipe {
        dataset: "wikitext",
        ..MASKED
    },
];
