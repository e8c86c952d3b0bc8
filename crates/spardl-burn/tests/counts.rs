//! The published numbers of parameters.

use spardl_burn::{DeviceChoice, build};
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
    ] {
        let model = build(name, &task, 0, &DeviceChoice::Flex).unwrap();
        assert_eq!(model.layout().len(), count, "{name}");
    }
}
