//! What the region sells just now: types, zones and prices, kept fresh in the background of calls. Readers never wait for a refresh
//! once there is something to read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mortise_core::cloud::InstanceType;
use mortise_core::money::MicroUsd;
use tokio::time::Instant;

use crate::api::Api;
use crate::api::describe::{self, SpotPrices};
use crate::catalog::Catalog;
use crate::failure::Failure;
use crate::instance_info::InstanceTypeInfo;
use crate::instance_type::{Place, Placement};
use crate::node_shape::NodeShape;

/// How long types and zones are believed: EC2 adds some every few weeks.
const TYPES_TTL: Duration = Duration::from_secs(12 * 3600);
/// How long spot prices are believed: they move over hours, not minutes.
const SPOT_TTL: Duration = Duration::from_secs(3600);
/// How long after a failed refresh the next one is tried.
const RETRY: Duration = Duration::from_secs(60);

/// Types, zones and spot prices at one time.
#[derive(Clone, Debug)]
pub(crate) struct View {
    /// Types that nodes can be made of. Sorted by name.
    pub(crate) types: Arc<Vec<InstanceTypeInfo>>,
    /// Zones by type.
    zones: Arc<BTreeMap<Arc<str>, BTreeSet<Arc<str>>>>,
    /// Spot prices; `None` until they could be read once.
    spot: Option<Arc<SpotPrices>>,
    types_due: Instant,
    spot_due: Instant,
}

/// The region's offer.
#[derive(Debug)]
pub(crate) struct Market {
    tables: Arc<Catalog>,
    region: String,
    view: Mutex<Option<View>>,
    refreshing: tokio::sync::Mutex<()>,
}

impl Market {
    pub(crate) fn new(tables: Arc<Catalog>, region: &str) -> Self {
        Self {
            tables,
            region: region.to_owned(),
            view: Mutex::new(None),
            refreshing: tokio::sync::Mutex::new(()),
        }
    }

    /// What is sold. Reads again what is too old; a failed refresh keeps the old and is tried again a minute later.
    /// # Errors
    /// Only while there is nothing old to keep.
    pub(crate) async fn view(&self, api: &Api) -> Result<View, Failure> {
        let fresh = |view: &View| Instant::now() < view.types_due.min(view.spot_due);
        if let Some(view) = self.current().filter(fresh) {
            return Ok(view);
        }
        let turn = match (self.refreshing.try_lock(), self.current()) {
            (Ok(turn), _) => turn,
            (Err(_), Some(old)) => return Ok(old), // somebody is at it
            (Err(_), None) => self.refreshing.lock().await,
        };
        let old = self.current();
        if let Some(view) = old.clone().filter(fresh) {
            return Ok(view);
        }
        let view = self.refresh(api, old).await?;
        *self.view.lock().unwrap_or_else(PoisonError::into_inner) = Some(view.clone());
        drop(turn);
        Ok(view)
    }

    async fn refresh(&self, api: &Api, old: Option<View>) -> Result<View, Failure> {
        let now = Instant::now();
        let (types_due, spot_due) = old
            .as_ref()
            .map_or((now, now), |old| (old.types_due, old.spot_due));
        let types = async {
            if types_due > now {
                Ok(None)
            } else {
                futures::try_join!(
                    describe::instance_types(api, &self.tables),
                    describe::offerings(api)
                )
                .map(Some)
            }
        };
        let spot = async {
            if spot_due > now {
                Ok(None)
            } else {
                describe::spot_prices(api).await.map(Some)
            }
        };
        let (types, spot) = futures::join!(types, spot);
        let (types, zones, types_due) = match (types, &old) {
            (Ok(Some((types, zones))), _) => {
                tracing::info!(types = types.len(), "read the instance types of the region");
                (Arc::new(types), Arc::new(zones), now + TYPES_TTL)
            }
            (Ok(None), Some(old)) => (Arc::clone(&old.types), Arc::clone(&old.zones), types_due),
            (Err(error), Some(old)) => {
                tracing::warn!(%error, "instance types could not be read again; the old list stays in use");
                (Arc::clone(&old.types), Arc::clone(&old.zones), now + RETRY)
            }
            (Err(error), None) => return Err(error),
            (Ok(None), None) => (Arc::new(Vec::new()), Arc::new(BTreeMap::new()), now),
        };
        let kept = old.and_then(|old| old.spot);
        let (spot, spot_due) = match spot {
            Ok(Some(spot)) => (Some(Arc::new(spot)), now + SPOT_TTL),
            Ok(None) => (kept, spot_due),
            Err(error) => {
                tracing::warn!(%error, "spot prices could not be read; the old ones stay in use, or on-demand prices where there are none");
                (kept, now + RETRY)
            }
        };
        Ok(View {
            types,
            zones,
            spot,
            types_due,
            spot_due,
        })
    }

    fn current(&self) -> Option<View> {
        self.view
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// A type as a machine of it in the zone has it, whether or not it is sold there just now; `None` for a type that is not known.
    pub(crate) fn instance_type(
        &self,
        name: &str,
        shape: &NodeShape,
        zone: &str,
    ) -> Option<InstanceType> {
        let view = self.current()?;
        let at = view
            .types
            .binary_search_by(|each| (*each.name).cmp(name))
            .ok()?;
        let place = Place {
            zone: Arc::from(zone),
            zone_id: None,
            on_demand: self.tables.on_demand_price(name, &self.region),
            spot: None,
        };
        let placement = Placement {
            region: Arc::from(&*self.region),
            places: vec![place],
        };
        view.types
            .get(at)
            .map(|info| info.instance_type(shape, &placement))
    }

    /// The zones of `zones` that sell the type, with prices. Until spot prices were read, the on-demand price stands for them: the
    /// careful guess.
    pub(crate) fn places(
        &self,
        view: &View,
        name: &str,
        zones: &BTreeMap<Arc<str>, Option<Arc<str>>>,
    ) -> Vec<Place> {
        let on_demand = self.tables.on_demand_price(name, &self.region);
        let Some(sold) = view.zones.get(name) else {
            return Vec::new();
        };
        let spot = |zone: &str| -> Option<MicroUsd> {
            match &view.spot {
                Some(prices) => prices.get(name)?.get(zone).copied(),
                None => on_demand,
            }
        };
        let here = zones.iter().filter(|(zone, _)| sold.contains(*zone));
        here.map(|(zone, id)| Place {
            zone: Arc::clone(zone),
            zone_id: id.clone(),
            on_demand,
            spot: spot(zone),
        })
        .collect()
    }
}
