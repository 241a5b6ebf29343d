//! What one declaration of the table of settings says, and what is made of all of them.

use super::value::{Rules, Setting, Shape};

pub const PREFIX: &str = "NGIT_";

/// A name by which other GRASP servers know a setting of ours.
pub struct Alias {
    pub env: &'static str,
    pub flag: &'static str,
    /// Our variable.
    pub of: &'static str,
}

pub const ALIASES: [Alias; 1] = [Alias {
    env: "NGIT_HUNT_SYNC_DELAY_MS",
    flag: "hunt-sync-delay-ms",
    of: "NGIT_HUNT_SYNCED_DELAY_MS",
}];

/// One declaration of the table.
#[derive(Debug)]
pub struct Spec {
    pub env: &'static str,
    /// Without the leading dashes.
    pub flag: String,
    pub group: &'static str,
    pub help: String,
    /// Empty means not set.
    pub default: &'static str,
    /// Completes "must be ...".
    pub expects: String,
    pub shape: Shape,
    pub secret: bool,
    pub(super) rules: Rules,
}

impl Spec {
    pub(super) fn declare<T: Setting>(
        env: &'static str,
        group: &'static str,
        help: &str,
        default: &'static str,
        rules: Rules,
    ) -> Self {
        let flag = env
            .trim_start_matches(PREFIX)
            .to_ascii_lowercase()
            .replace('_', "-");
        let (help, expects) = (help.trim().to_owned(), T::expects(&rules));
        Self {
            env,
            flag,
            group,
            help,
            default,
            expects,
            shape: T::SHAPE,
            secret: T::SECRET,
            rules,
        }
    }
}

macro_rules! settings {
    ($($group:literal {$(
        $(#[doc = $help:literal])+
        $env:ident => $field:ident: $type:ty = $default:literal $(in $range:expr)?;
    )+})+) => {
        /// What the operator decided, read and checked.
        #[derive(Debug, Clone)]
        pub struct Config {$($(
            $(#[doc = $help])+
            pub $field: $type,
        )+)+}

        static SPECS: LazyLock<Vec<Spec>> = LazyLock::new(|| vec![$($(
            Spec::declare::<$type>(
                stringify!($env),
                $group,
                concat!($($help),+),
                $default,
                Rules::of(stringify!($env))$(.within($range))?,
            ),
        )+)+]);

        impl Config {
            /// Reads every field, also after one has failed, so that all errors are reported.
            pub(super) fn read(layers: &mut Layers) -> Option<Self> {
                let mut specs = specs().iter();
                $($(let $field = specs.next().and_then(|spec| layers.read::<$type>(spec));)+)+
                Some(Self { $($($field: $field?,)+)+ })
            }

            /// Every value as text, in the order of [`specs`].
            pub(super) fn shown(&self) -> Vec<String> {
                let mut specs = specs().iter();
                let mut shown = Vec::new();
                $($(shown.extend(specs.next().map(|spec| self.$field.show(&spec.rules)));)+)+
                shown
            }
        }
    };
}

pub(super) use settings;
