//! The id of a series: which upstream has it, and under which name.

use std::fmt;
use std::str::FromStr;

use event::id::{DeviceId, NodeId, TenantId};
use event::scada::{AssetName, Tag};

/// `site:SITE:TENANT:DEVICE:METRIC` or `historian:PLANT:AREA:UNIT:TAG`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SeriesId {
    Site { site: String, tenant: TenantId, device: DeviceId, metric: String },
    Historian { plant: String, area: String, unit: String, tag: String },
}

impl FromStr for SeriesId {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<SeriesId, Self::Err> {
        const EXPECTED: &str = "the id of a series as /api/v1/explore/series lists it";
        let words: Vec<&str> = text.split(':').collect();
        match words[..] {
            ["site", site, tenant, device, metric] => {
                event::farm::rules::metric_type("series", metric).map_err(|_| EXPECTED)?;
                Ok(SeriesId::Site {
                    site: site.parse::<NodeId>().map_err(|_| EXPECTED)?.to_string(),
                    tenant: tenant.parse().map_err(|_| EXPECTED)?,
                    device: device.parse().map_err(|_| EXPECTED)?,
                    metric: metric.to_owned(),
                })
            }
            ["historian", plant, area, unit, tag] => {
                for name in [plant, area, unit] {
                    name.parse::<AssetName>().map_err(|_| EXPECTED)?;
                }
                tag.parse::<Tag>().map_err(|_| EXPECTED)?;
                let [plant, area, unit, tag] = [plant, area, unit, tag].map(str::to_owned);
                Ok(SeriesId::Historian { plant, area, unit, tag })
            }
            _ => Err(EXPECTED),
        }
    }
}

impl fmt::Display for SeriesId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SeriesId::Site { site, tenant, device, metric } => {
                write!(f, "site:{site}:{tenant}:{device}:{metric}")
            }
            SeriesId::Historian { plant, area, unit, tag } => {
                write!(f, "historian:{plant}:{area}:{unit}:{tag}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_as_it_was_written_and_nothing_else_is() {
        let (tenant, device) = (TenantId::mint(), DeviceId::mint());
        let site = format!("site:up:{tenant}:{device}:temperature");
        for text in [site.as_str(), "historian:PLANT01:AREA02:UNIT_05:FLOW_RATE"] {
            assert_eq!(text.parse::<SeriesId>().unwrap().to_string(), text);
        }
        for text in
            ["", "site:up", "site:../x:a:b:c", "historian:a:b:c:d/../e", &format!("{site}:x")]
        {
            assert!(text.parse::<SeriesId>().is_err(), "{text}");
        }
    }
}
