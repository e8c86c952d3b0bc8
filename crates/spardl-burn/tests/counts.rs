//! The published numbers of parameters.

use spardl_burn::layout;
use spardl_train::data::Task;

const MNIST: Task = Task::Images {
    shape: [1, 28, 28],
    classes: 10,
};
const CIFAR: Task = Task::Images {
    shape: [3, 32, 32],
    classes: 10,
};
const IMAGENET: Task = Task::Images {
    shape: [3, 224, 224],
    classes: 1000,
};
const IMDB: Task = Task::Sequences {
    length: 200,
    vocabulary: 20_000,
    classes: 2,
};

const ALL_IMDB: Task = Task::Sequences {
    length: 500,
    vocabulary: 50_001,
    classes: 2,
};

const fn text(vocabulary: usize) -> Task {
    Task::Language {
        length: 512,
        vocabulary,
    }
}

#[test]
fn parameter_counts_are_the_published_ones() {
    for (name, task, count) in [
        ("mlp", MNIST, 269_322),
        ("lenet", MNIST, 61_706),
        ("resnet20", CIFAR, 269_722),
        ("resnet56", CIFAR, 853_018),
        ("resnet110", CIFAR, 1_727_962),
        ("resnet50", IMAGENET, 25_557_032),
        ("vgg16", CIFAR, 14_728_266),
        ("vgg19", CIFAR, 20_040_522),
        ("alexnet", CIFAR, 23_272_266),
        ("alexnet", IMAGENET, 61_100_840),
        ("lstm", text(10_000), 19_775_200),
        ("sentiment", IMDB, 1_313_282),
        ("lstmimdb", ALL_IMDB, 2_560_652),
        ("bert-tiny", text(30_522), 4_416_698),
        ("bert-small", text(30_522), 28_795_194),
        ("bert-base", text(30_522), 109_514_298),
    ] {
        assert_eq!(layout(name, &task).unwrap().len(), count, "{name}");
    }
}
