//! What a node class stands for: the subnets, groups and images that its terms select, its conditions, and the instance types that it
//! can launch. Gathers what AWS says, assembles it, and remembers it for launches.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use mortise_apis::node_class::NodeClassObject;
use mortise_aws_class::spec::Ec2NodeClass;
use mortise_cloudprovider::{CloudError, InstanceType, ResolveRequest, ResolvedNodeClass, Retry};

use crate::config::AwsConfig;
use crate::failure::Failure;
use crate::node_class::assembly::{self, ReadOptions};
use crate::node_class::cache::{CachedNodeClass, NodeClassCache};
use crate::node_class::capacity_reservations;
use crate::node_class::conditions::{self, Validity};
use crate::node_class::instance_profiles::InstanceProfiles;
use crate::node_class::launch_trial::LaunchTrial;
use crate::node_class::lookup::{Asking, ClassLookup, ClassPart};
use crate::node_class::validation::{Validation, ValidationInput};
use crate::offerings::availability::{Availability, Moment};
use crate::offerings::region_offerings::{OfferingsView, RegionOfferings};
use crate::offerings::unavailable_offerings::UnavailableOfferings;
use crate::sdk::AwsClients;
use crate::sdk::cluster_info::{ClusterInfo, ClusterInfoCache};
use crate::sdk::vpc_cni::VpcCni;
use crate::tags;

/// How soon a class is resolved again while the first prices are on their way: a few pages of a list.
const PRICES_MS: i64 = 5_000;
/// How soon a class is resolved again after a call failed, the first time; then twice as long each time.
const RETRY_MS: i64 = 5_000;
/// How often the time doubles.
const DOUBLINGS: u32 = 6;

/// What the provider shares with the resolver.
#[derive(Clone, Debug)]
pub(crate) struct ResolverParts {
    pub(crate) clients: Arc<AwsClients>,
    pub(crate) config: Arc<AwsConfig>,
    pub(crate) cluster: Arc<ClusterInfoCache>,
    pub(crate) offerings: Arc<RegionOfferings>,
    pub(crate) unavailable: Arc<UnavailableOfferings>,
    pub(crate) profiles: Arc<InstanceProfiles>,
    pub(crate) moment: Moment,
    pub(crate) trial: Arc<dyn LaunchTrial>,
}

/// How soon zonal shifts are to be seen in a class's types.
const SHIFTS_MS: i64 = 30_000;
/// How soon the counts of a class's capacity reservations are read again.
/// # Source
/// The reference implementation's number.
const RESERVATIONS_MS: i64 = 60_000;

/// How soon the end of what is unavailable is seen at the earliest: in a shortage much ends, each at its own time.
const UNAVAILABLE_MS: i64 = 10_000;

/// Resolves node classes.
#[derive(Debug)]
pub(crate) struct NodeClassResolver {
    config: Arc<AwsConfig>,
    lookup: ClassLookup,
    validation: Validation,
    offerings: Arc<RegionOfferings>,
    unavailable: Arc<UnavailableOfferings>,
    moment: Moment,
    /// Zonal shifts change what is available between two looks at a class.
    watches_shifts: bool,
    cache: NodeClassCache,
    /// How many times in a row a class could not be resolved as a whole, by name.
    failures: Mutex<HashMap<String, u32>>,
}

/// What looking up a class found in addition to the class.
#[derive(Debug)]
struct LookupContext {
    /// Why a part could not be asked for, if one could not.
    failed: Option<Failure>,
    cluster: ClassPart<Arc<ClusterInfo>>,
    offerings: OfferingsView,
}

/// Reads the object of a class.
/// # Errors
/// It is not an `EC2NodeClass`; the text names the field.
pub(crate) fn parse(object: &NodeClassObject) -> Result<Ec2NodeClass, CloudError> {
    let read = serde_json::from_value::<Ec2NodeClass>((*object.object).clone());
    read.map_err(|error| CloudError {
        label: "invalid_class",
        message: format!("{} cannot be read: {error}", object.key),
        retry: Retry::Never,
    })
}

impl NodeClassResolver {
    /// Calls nothing yet.
    pub(crate) fn new(parts: ResolverParts) -> Self {
        let ResolverParts {
            clients,
            config,
            cluster,
            offerings,
            unavailable,
            profiles,
            moment,
            trial,
        } = parts;
        let reserved = config.reserved_capacity;
        Self {
            config: Arc::clone(&config),
            lookup: ClassLookup::new(
                clients,
                cluster,
                Arc::clone(&offerings),
                profiles,
                reserved.then(|| Arc::clone(&moment.reservations)),
            ),
            watches_shifts: config.zonal_shift,
            validation: Validation::new(config, trial),
            offerings,
            unavailable,
            moment,
            cache: NodeClassCache::default(),
            failures: Mutex::default(),
        }
    }

    /// Looks everything up again, and judges the class.
    /// # Errors
    /// A call failed, and the class, which is not ready, says already what is known of it.
    pub(crate) async fn resolve(
        &self,
        request: &ResolveRequest,
        now: Timestamp,
    ) -> Result<ResolvedNodeClass, CloudError> {
        let object = parse(&request.class)?;
        // Asked before, so that prices that come meanwhile are not missed.
        let waits = self.offerings.awaits_prices();
        let reserved = self.config.reserved_capacity;
        let asking = Asking::Resolve(&request.claims);
        let stored = object.status.clone();
        let (mut class, context) = self.look_up(object, asking, now).await?;
        let LookupContext {
            failed,
            cluster,
            offerings,
        } = context;
        let input = ValidationInput {
            class: &class,
            cluster: &cluster,
            offerings: &offerings,
            pools: &request.node_pools,
        };
        let validity = self.validation.judge(input).await;
        conditions::validated(&mut class.object, &validity, reserved, now);
        if !waits {
            let note = self.offerings.price_state().note(now);
            conditions::priced(&mut class.object, note.as_deref(), reserved, now);
        }
        let status = assembly::patch(&stored, &class.object.status);
        let class = self.keep(class);
        let retry_ms = self.retry_ms(class.name(), failed.as_ref(), &validity);
        if let Some(failure) = failed.or(match validity {
            Validity::Unknown(failure) => failure,
            _ => None,
        }) {
            if status.is_none() && class.not_ready.is_some() {
                return Err(failure.into());
            }
            tracing::warn!(class = class.name(), error = %failure, "failed to resolve a part of node class");
        }
        let images = |instance_type: &str| class.image(instance_type).map(|image| &*image.id);
        self.moment
            .memory
            .learn(&request.claims, &request.nodes, images);
        Ok(ResolvedNodeClass {
            status,
            annotations: class.hash_annotations(),
            finalizer: Some(tags::CLASS_FINALIZER),
            instance_types: self.offered(&class),
            shifted_zones: self.moment.shifted.seen_by(&class.object, now),
            again_ms: self
                .again_ms(&class, waits, now)
                .into_iter()
                .chain(retry_ms)
                .min(),
        })
    }

    /// How soon the class is to be resolved again because not all of it could be; `None` if all of it was.
    fn retry_ms(&self, name: &str, failed: Option<&Failure>, validity: &Validity) -> Option<i64> {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if failed.is_none() && !matches!(validity, Validity::Unknown(_)) {
            failures.remove(name);
            return None;
        }
        let times = failures.entry(name.to_owned()).or_default();
        let wait = RETRY_MS << (*times).min(DOUBLINGS);
        *times = times.saturating_add(1);
        Some(wait)
    }

    /// When to resolve again, if something is known to change sooner than a class does: the first prices, zonal shifts, what is left in
    /// reservations, blocks that take no more, and the end of what is unavailable.
    fn again_ms(
        &self,
        class: &CachedNodeClass,
        awaits_prices: bool,
        now: Timestamp,
    ) -> Option<i64> {
        let prices = awaits_prices.then_some(PRICES_MS);
        let shifts = self.watches_shifts.then_some(SHIFTS_MS);
        let reservations = (!class.reservations.is_empty()).then_some(RESERVATIONS_MS);
        let unavailable = self.unavailable.again_ms();
        let unavailable = unavailable.map(|wait| wait.max(UNAVAILABLE_MS));
        let expiring = capacity_reservations::expiring_in_ms(&class.reservations, now);
        let all = [prices, shifts, reservations, expiring, unavailable];
        all.into_iter().flatten().min()
    }

    /// Forgets a class that is being deleted. Returns the answer for it: nothing is launched with it any more.
    pub(crate) fn release(&self, name: &str) -> ResolvedNodeClass {
        self.cache.remove(name);
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.remove(name);
        ResolvedNodeClass {
            status: None,
            annotations: BTreeMap::new(),
            finalizer: Some(tags::CLASS_FINALIZER),
            instance_types: Vec::new(),
            shifted_zones: Vec::new(),
            again_ms: None,
        }
    }

    /// The class as it was found a moment ago, or found now. Its conditions except for its validity are judged again; nothing is made
    /// for it.
    pub(crate) async fn get(
        &self,
        object: &NodeClassObject,
    ) -> Result<Arc<CachedNodeClass>, CloudError> {
        let object = parse(object)?;
        if let Some(class) = self.cache.get(&object) {
            return Ok(class);
        }
        let now = Timestamp::now();
        let (class, _) = self.look_up(object, Asking::Use, now).await?;
        Ok(self.cache.insert_if_unknown(Self::with_readiness(class)))
    }

    /// What the terms of a class select now, and what its validation needs to know of it.
    async fn look_up(
        &self,
        object: Ec2NodeClass,
        asking: Asking<'_>,
        now: Timestamp,
    ) -> Result<(CachedNodeClass, LookupContext), CloudError> {
        let found = Box::pin(self.lookup.find(&object, asking, now)).await?;
        let context = LookupContext {
            failed: found.failure().cloned(),
            cluster: found.cluster.clone(),
            offerings: found.offerings.clone(),
        };
        let previous = self.cache.previous(&object);
        let previous = previous.as_deref();
        let options = self.options(&found.cluster, previous);
        let class = assembly::assemble(object, found, previous, &self.offerings, options, now);
        Ok((class, context))
    }

    /// How a class is read in the cluster; as before while that is not known.
    fn options(
        &self,
        cluster: &ClassPart<Arc<ClusterInfo>>,
        previous: Option<&CachedNodeClass>,
    ) -> ReadOptions {
        let shape = match (cluster, previous) {
            (Ok(cluster), _) => cluster.cni.unwrap_or_default().options(&self.config),
            (Err(_), Some(previous)) => previous.settings.options,
            (Err(_), None) => VpcCni::default().options(&self.config),
        };
        ReadOptions {
            shape,
            reserved: self.config.reserved_capacity,
        }
    }

    /// Remembers a class that was judged.
    fn keep(&self, class: CachedNodeClass) -> Arc<CachedNodeClass> {
        let class = Self::with_readiness(class);
        self.cache.insert(Arc::clone(&class));
        class
    }

    /// A class is ready if its conditions say so.
    fn with_readiness(mut class: CachedNodeClass) -> Arc<CachedNodeClass> {
        let unmet = conditions::not_ready(&class.object.status.conditions);
        class.not_ready = unmet.or(class.not_ready);
        Arc::new(class)
    }

    /// What of the class can be launched now.
    pub(crate) fn availability(&self, class: &CachedNodeClass) -> Availability {
        self.moment
            .availability(class.unavailable(&self.unavailable))
    }

    /// The class's `wanted` types as they are now.
    pub(crate) fn offered_to(
        &self,
        class: &CachedNodeClass,
        wanted: impl Fn(&InstanceType) -> bool,
    ) -> Vec<InstanceType> {
        let image = |each: &InstanceType| class.image(&each.name).map(|image| &*image.id);
        let availability = self.availability(class);
        let wanted = class.types.iter().filter(|each| wanted(each));
        let now = wanted.flat_map(|each| {
            let each = std::slice::from_ref(each);
            self.moment.applied_to(each, &availability, image)
        });
        now.collect()
    }

    /// The class's types as they are now.
    pub(crate) fn offered(&self, class: &CachedNodeClass) -> Vec<InstanceType> {
        let image = |each: &InstanceType| class.image(&each.name).map(|image| &*image.id);
        let availability = self.availability(class);
        self.moment.applied_to(&class.types, &availability, image)
    }
}
