//! The default rule for the residual is global-b in very sparse steps and global-a in others, to the bit.

use spardl_algos::{Options, registry};
use spardl_testkit::{Trial, check, generate};

const LEN: usize = 4000;
const WORKERS: u32 = 4;

/// Updates and what is kept after each step of so many entries.
fn steps(rule: Option<&str>, teams: u32, ks: &[usize]) -> Vec<(Vec<u32>, Vec<check::Kept>)> {
    let options = Options::default().with("teams", teams);
    let options = rule.map_or(options.clone(), |rule| options.with("residual", rule));
    let algorithm = registry::build("spardl", &options).unwrap();
    let mut trial = Trial::new(&*algorithm, WORKERS, LEN);
    let mut step = |(step, &k): (u64, &usize)| {
        let gradients = generate::fractions(step, WORKERS, LEN);
        (check::bits(&trial.step(&gradients, k, step)), trial.kept())
    };
    (0..).zip(ks).map(&mut step).collect()
}

#[test]
fn the_rule_goes_by_the_density_of_the_step() {
    let (sparse, dense) = ([19, 1, 4, 19], [20, 400, 40, 4000]);
    for teams in [1, 2, 4] {
        assert_eq!(
            steps(None, teams, &sparse),
            steps(Some("global-b"), teams, &sparse)
        );
        assert_eq!(
            steps(None, teams, &dense),
            steps(Some("global-a"), teams, &dense)
        );
    }
    assert_ne!(
        steps(Some("global-a"), 1, &sparse),
        steps(Some("global-b"), 1, &sparse)
    );
}
