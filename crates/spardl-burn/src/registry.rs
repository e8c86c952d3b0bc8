//! How the networks of the list are made.

use burn::tensor::Device;
use spardl_core::{ConfigError, Layout};
use spardl_nets::{BuildError, Entry, PERCEPTRON, find, perceptron};
use spardl_train::Model;
use spardl_train::data::Task;

use crate::models::alexnet::AlexNet;
use crate::models::bert::{self, Bert};
use crate::models::lenet::LeNet;
use crate::models::lstm::{LastOutput, Sentiment, WordModel};
use crate::models::mlp::Mlp;
use crate::models::resnet::CifarResNet;
use crate::models::resnet50::ResNet50;
use crate::models::vgg::Vgg;
use crate::replica::{Network, Replica};
use crate::{DeviceChoice, flat};

/// A replica of the network called `name` for `task`, its parameters drawn from `seed`.
///
/// On the CPU `mlp` is the one of `spardl-nets`: a network has the same bits with and without burn.
///
/// # Errors
/// When there is no such network, or it does not fit the task.
pub fn build(
    name: &str,
    task: &Task,
    seed: u64,
    device: &DeviceChoice,
) -> Result<Box<dyn Model + Send>, BuildError> {
    let entry = find(name)?;
    if name == PERCEPTRON && *device == DeviceChoice::Flex {
        return Ok(Box::new(perceptron(task, seed)?));
    }
    plan(entry, task, device)?
        .replica(seed)
        .map_err(|source| BuildError::TooLarge {
            name: entry.name,
            source,
        })
}

/// Names and shapes of the parameters that [`build`] would make, without making them.
///
/// # Errors
/// As [`build`].
pub fn layout(name: &str, task: &Task) -> Result<Layout, BuildError> {
    let entry = find(name)?;
    plan(entry, task, &DeviceChoice::Flex)?
        .layout()
        .map_err(|source| BuildError::TooLarge {
            name: entry.name,
            source,
        })
}

/// A network whose parameters have no values yet.
trait Plan {
    fn layout(&self) -> Result<Layout, ConfigError>;
    fn replica(self: Box<Self>, seed: u64) -> Result<Box<dyn Model + Send>, ConfigError>;
}

struct Planned<N> {
    network: N,
    place: Place,
}

impl<N: Network + 'static> Plan for Planned<N> {
    fn layout(&self) -> Result<Layout, ConfigError> {
        flat::layout(&self.network)
    }

    fn replica(self: Box<Self>, seed: u64) -> Result<Box<dyn Model + Send>, ConfigError> {
        let Place { device, shape } = self.place;
        Ok(Box::new(Replica::new(self.network, seed, &device, &shape)?))
    }
}

fn plan(entry: &Entry, task: &Task, device: &DeviceChoice) -> Result<Box<dyn Plan>, BuildError> {
    entry.check(task)?;
    let place = |shape: &[usize]| Place {
        device: device.open(),
        shape: shape.to_vec(),
    };
    let maker = MAKERS.iter().find(|(name, _)| *name == entry.name);
    Ok(match (maker.map(|(_, make)| make), *task) {
        (Some(Make::Images(make)), Task::Images { shape, classes }) => {
            make(place(&shape), shape, classes)
        }
        (
            Some(Make::Sequences(make)),
            Task::Sequences {
                length,
                vocabulary,
                classes,
            },
        ) => make(place(&[length]), vocabulary, classes),
        (Some(Make::Language(make)), Task::Language { length, vocabulary }) => {
            make(place(&[length]), length, vocabulary)
        }
        _ => unreachable!(
            "every network of the list has a maker for its task: the tests build them all"
        ),
    })
}

/// How each network of the list is made.
const MAKERS: &[(&str, Make)] = &[
    (
        "mlp",
        Make::Images(|place, shape, classes| place.plan(|device| Mlp::new(shape, classes, device))),
    ),
    (
        "lenet",
        Make::Images(|place, shape, classes| {
            place.plan(|device| LeNet::new(shape, classes, device))
        }),
    ),
    ("resnet20", cifar_resnet::<3>()),
    ("resnet56", cifar_resnet::<9>()),
    ("resnet110", cifar_resnet::<18>()),
    (
        "resnet50",
        Make::Images(|place, shape, classes| {
            place.plan(|device| ResNet50::new(shape[0], classes, device))
        }),
    ),
    (
        "vgg16",
        Make::Images(|place, shape, classes| {
            place.plan(|device| Vgg::vgg16(shape[0], classes, device))
        }),
    ),
    (
        "vgg19",
        Make::Images(|place, shape, classes| {
            place.plan(|device| Vgg::vgg19(shape[0], classes, device))
        }),
    ),
    (
        "alexnet",
        Make::Images(|place, shape, classes| {
            place.plan(|device| AlexNet::new(shape, classes, device))
        }),
    ),
    (
        "lstm",
        Make::Language(|place, _, vocabulary| {
            place.plan(|device| WordModel::new(vocabulary, device))
        }),
    ),
    (
        "sentiment",
        Make::Sequences(|place, vocabulary, classes| {
            place.plan(|device| Sentiment::new(vocabulary, classes, device))
        }),
    ),
    (
        "lstmimdb",
        Make::Sequences(|place, vocabulary, classes| {
            place.plan(|device| LastOutput::new(vocabulary, classes, device))
        }),
    ),
    ("bert", Make::Language(bert_base)),
    ("bert-base", Make::Language(bert_base)),
    ("bert-small", Make::Language(bert_small)),
    ("bert-tiny", Make::Language(bert_tiny)),
];

/// How to make a network of a task's numbers.
#[derive(Debug)]
enum Make {
    /// Channels, rows and columns; classes.
    Images(fn(Place, [usize; 3], usize) -> Box<dyn Plan>),
    /// Vocabulary, classes.
    Sequences(fn(Place, usize, usize) -> Box<dyn Plan>),
    /// Length, vocabulary.
    Language(fn(Place, usize, usize) -> Box<dyn Plan>),
}

/// Where a network will be, and the shape of its samples.
struct Place {
    device: Device,
    shape: Vec<usize>,
}

impl Place {
    fn plan<N: Network + 'static>(self, network: impl FnOnce(&Device) -> N) -> Box<dyn Plan> {
        let network = network(&self.device);
        Box::new(Planned {
            network,
            place: self,
        })
    }
}

fn bert_base(place: Place, length: usize, vocabulary: usize) -> Box<dyn Plan> {
    place.plan(|device| Bert::new(length, vocabulary, bert::BASE, device))
}

fn bert_small(place: Place, length: usize, vocabulary: usize) -> Box<dyn Plan> {
    place.plan(|device| Bert::new(length, vocabulary, bert::SMALL, device))
}

fn bert_tiny(place: Place, length: usize, vocabulary: usize) -> Box<dyn Plan> {
    place.plan(|device| Bert::new(length, vocabulary, bert::TINY, device))
}

const fn cifar_resnet<const BLOCKS: usize>() -> Make {
    Make::Images(|place, shape, classes| {
        place.plan(|device| CifarResNet::new(shape[0], classes, BLOCKS, device))
    })
}
