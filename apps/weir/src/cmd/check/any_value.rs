//! The bounds of a module for every value that its manifest allows, beside those for the values that are set.

use serde::Serialize;
use weir_admission::{Assessment, ModuleRefusal};

/// The assessment of a module for every allowed value of all its parameters.
#[derive(Debug, Serialize)]
pub struct AnyValue {
    /// True if bounds and tier are those for the values that are set.
    #[serde(rename = "same")]
    pub is_same: bool,
    /// The tier; `None` if the profile does not admit the module with every allowed value.
    pub tier: Option<&'static str>,
    /// The reason why the module is not proved; `None` if it is.
    pub reason: Option<String>,
}

impl AnyValue {
    /// Assesses the module of an assessment for every allowed value; `None` if it has no parameter with a value.
    pub fn of(set: &Assessment) -> Option<Self> {
        set.values().iter().flatten().next()?;
        let bytes = set.module().bytes().to_vec();
        let any = match Assessment::assess_any_value(bytes, &[], set.calibrated_profile()) {
            Ok(any) => any,
            Err(refusal) => return Some(Self::refused(&refusal)),
        };
        let is_same = any.comparisons() == set.comparisons() && any.verdict().ok() == set.verdict().ok();
        let worst = any.worst().map(|worst| {
            let amount = worst.amount_text(worst.bound, set.calibrated_profile().calibration());
            let amount = if worst.bound.is_bounded() { format!(" ({amount})") } else { String::new() };
            format!("{worst}{amount}")
        });
        Some(match any.verdict() {
            Ok(tier) => Self { is_same, tier: Some(tier.name()), reason: worst },
            Err(ModuleRefusal::Excess(_)) => Self { is_same, tier: None, reason: worst },
            Err(refusal) => Self { is_same, ..Self::refused(refusal) },
        })
    }

    fn refused(refusal: &ModuleRefusal) -> Self {
        Self { is_same: false, tier: None, reason: Some(refusal.to_string()) }
    }

    /// Describes the tier, or the refusal, with the reason.
    pub fn verdict_text(&self) -> String {
        let tier = self.tier.unwrap_or("refused");
        self.reason.as_ref().map_or_else(|| tier.to_owned(), |reason| format!("{tier}, {reason}"))
    }
}
