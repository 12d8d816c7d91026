//! Every algorithm decides as its definition says, at every step of every walk: plain
//! costs alone, all four words, and all four while the policy changes.

use proptest::prelude::*;

use crate::call::Policy;
use crate::oracle::{Exact, Fixed, Model, Slide, Token};
use crate::random::{
    Step, Walk, changing_steps, config, exact_policies, fixed_policies, instants_us,
    settling_steps, slide_policies, steps, token_policies,
};
use crate::run::Run;

fn walk<M: Model>(policies: &[Policy], start_us: u64, steps: &[Step]) {
    let mut run = Run::<M>::new();
    let mut walk = Walk::from(start_us);
    for step in steps {
        let policy = policies[step.policy];
        let (now_us, word) = walk.next_word(policy, *step);
        walk.answered(run.step(policy, now_us, word));
    }
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn fixed_decides_as_defined(
        policy in fixed_policies(), start_us in instants_us(), steps in steps(30),
    ) {
        walk::<Fixed>(&[policy], start_us, &steps);
    }

    #[test]
    fn fixed_settles_as_defined(
        policy in fixed_policies(), start_us in instants_us(), steps in settling_steps(30),
    ) {
        walk::<Fixed>(&[policy], start_us, &steps);
    }

    #[test]
    fn token_decides_as_defined(
        policy in token_policies(), start_us in instants_us(), steps in steps(30),
    ) {
        walk::<Token>(&[policy], start_us, &steps);
    }

    #[test]
    fn token_settles_as_defined(
        policy in token_policies(), start_us in instants_us(), steps in settling_steps(30),
    ) {
        walk::<Token>(&[policy], start_us, &steps);
    }

    #[test]
    fn slide_decides_as_defined(
        policy in slide_policies(), start_us in instants_us(), steps in steps(30),
    ) {
        walk::<Slide>(&[policy], start_us, &steps);
    }

    #[test]
    fn slide_settles_as_defined(
        policy in slide_policies(), start_us in instants_us(), steps in settling_steps(30),
    ) {
        walk::<Slide>(&[policy], start_us, &steps);
    }

    #[test]
    fn exact_decides_as_defined(
        policy in exact_policies(), start_us in instants_us(), steps in steps(30),
    ) {
        walk::<Exact>(&[policy], start_us, &steps);
    }

    #[test]
    fn exact_settles_as_defined(
        policy in exact_policies(), start_us in instants_us(), steps in settling_steps(30),
    ) {
        walk::<Exact>(&[policy], start_us, &steps);
    }

    #[test]
    fn fixed_decides_as_defined_while_its_policy_changes(
        policies in [fixed_policies(), fixed_policies(), fixed_policies()],
        start_us in instants_us(), steps in changing_steps(30),
    ) {
        walk::<Fixed>(&policies, start_us, &steps);
    }

    #[test]
    fn token_decides_as_defined_while_its_policy_changes(
        policies in [token_policies(), token_policies(), token_policies()],
        start_us in instants_us(), steps in changing_steps(30),
    ) {
        walk::<Token>(&policies, start_us, &steps);
    }

    #[test]
    fn slide_decides_as_defined_while_its_policy_changes(
        policies in [slide_policies(), slide_policies(), slide_policies()],
        start_us in instants_us(), steps in changing_steps(30),
    ) {
        walk::<Slide>(&policies, start_us, &steps);
    }

    #[test]
    fn exact_decides_as_defined_while_its_policy_changes(
        policies in [exact_policies(), exact_policies(), exact_policies()],
        start_us in instants_us(), steps in changing_steps(30),
    ) {
        walk::<Exact>(&policies, start_us, &steps);
    }
}
