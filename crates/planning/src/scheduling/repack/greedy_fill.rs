//! Filling machines of one shape with pods that may be on any of them.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::pareto_front::{ItemValue, ParetoFront, ResourcePrices, SCALE};
use crate::scheduling::resource_vector::{ResourceVector, add, fit, subtract};

/// What a pod asks of the pods it shares a machine with.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct HostnameSpreadLimit {
    /// Groups of pods that count it, by index.
    pub(super) counted_in: SmallVec<[usize; 2]>,
    /// Groups of which its machine must not have more than so many.
    pub(super) at_most: SmallVec<[(usize, i32); 1]>,
}

/// A pod that may be on any of the machines.
#[derive(Clone, Debug)]
pub(super) struct PackItem {
    /// Its index in the pass.
    pub(super) pod: usize,
    /// What it takes.
    pub(super) amounts: ResourceVector,
    /// Index of its company.
    pub(super) company: usize,
}

/// A machine.
#[derive(Clone, Debug)]
pub(super) struct Bin {
    /// What its pods take.
    pub(super) taken: ResourceVector,
    /// Pieces that were put on it.
    pub(super) pods: Vec<usize>,
    /// It has pods that stay.
    pub(super) seeded: bool,
    /// Per group: how many are on it, and how many may be.
    groups: SmallVec<[(usize, i32, i32); 4]>,
}

impl Bin {
    /// A machine with pods that stay.
    pub(super) fn with(taken: ResourceVector, seeded: bool) -> Self {
        Self {
            taken,
            pods: Vec::new(),
            seeded,
            groups: SmallVec::new(),
        }
    }

    fn group(&mut self, group: usize) -> &mut (usize, i32, i32) {
        let at = self.groups.iter().position(|each| each.0 == group);
        let at = at.unwrap_or_else(|| {
            self.groups.push((group, 0, i32::MAX));
            self.groups.len() - 1
        });
        &mut self.groups[at]
    }

    fn admits(&self, company: &HostnameSpreadLimit) -> bool {
        let known = |group: usize| {
            let known = self.groups.iter().find(|each| each.0 == group);
            known.map_or((0, i32::MAX), |(_, count, most)| (*count, *most))
        };
        let one_more = |group: usize| i32::from(company.counted_in.contains(&group));
        company
            .counted_in
            .iter()
            .map(|group| (known(*group), *group))
            .all(|((count, most), _)| count < most)
            && company.at_most.iter().all(|(group, most)| {
                let (count, _) = known(*group);
                count + one_more(*group) <= *most
            })
    }

    /// Counts a pod that is on it.
    pub(super) fn count(&mut self, company: &HostnameSpreadLimit) {
        for group in &company.counted_in {
            self.group(*group).1 += 1;
        }
        for (group, most) in &company.at_most {
            let own = self.group(*group);
            own.2 = own.2.min(*most);
        }
    }

    fn is_limited(&self) -> bool {
        self.groups.iter().any(|(_, _, most)| *most < i32::MAX)
    }
}

/// Pieces that take the same.
#[derive(Debug)]
struct ItemSize {
    amounts: ResourceVector,
    value: ItemValue,
    limited: bool,
    pieces: Vec<usize>,
}

/// How many pieces of a size are looked at before the size is given up for a machine.
const TRIES: usize = 8;
/// How many types are tried for a machine.
const CHOICES: usize = 4;

/// How pieces are chosen.
#[derive(Clone, Copy, Debug)]
pub(super) struct FillStrategy {
    /// How much imbalance counts against worth, in halves.
    pub(super) balance: i64,
    /// Pieces that limit their company go before all others.
    pub(super) limited_first: bool,
    /// What is left at last goes on one machine if a type holds it, not on several that waste less.
    pub(super) together: bool,
    /// What comes next among the types that are tried for a machine is dearer by this many percent.
    pub(super) step: i64,
}

/// The state of filling.
pub(super) struct GreedyFill<'f> {
    pub(super) ladder: &'f ParetoFront,
    pub(super) worth: &'f ResourcePrices,
    pub(super) companies: &'f [HostnameSpreadLimit],
    pub(super) pieces: &'f [PackItem],
    manner: FillStrategy,
    sizes: Vec<ItemSize>,
    left: usize,
    /// Work that may still be done.
    pub(super) budget: u64,
}

/// One piece taken from its size, so that it can be put back.
struct TakenItem {
    size: usize,
    at: usize,
    piece: usize,
}

/// The budget is used up, or some pod found no machine.
#[derive(Debug)]
pub(super) struct FillFailed;

impl<'f> GreedyFill<'f> {
    pub(super) fn new(
        ladder: &'f ParetoFront,
        worth: &'f ResourcePrices,
        companies: &'f [HostnameSpreadLimit],
        pieces: &'f [PackItem],
        manner: FillStrategy,
        budget: u64,
    ) -> Self {
        let mut by_size: BTreeMap<(bool, &ResourceVector), Vec<usize>> = BTreeMap::new();
        for (at, piece) in pieces.iter().enumerate() {
            let limited = !companies[piece.company].at_most.is_empty();
            by_size
                .entry((limited, &piece.amounts))
                .or_default()
                .push(at);
        }
        let size = |((limited, amounts), pieces): ((bool, &ResourceVector), Vec<usize>)| ItemSize {
            value: worth.of(amounts),
            amounts: amounts.clone(),
            limited,
            pieces,
        };
        Self {
            ladder,
            worth,
            companies,
            pieces,
            manner,
            sizes: by_size.into_iter().map(size).collect(),
            left: pieces.len(),
            budget,
        }
    }

    /// Puts every piece on a machine.
    ///
    /// # Errors
    /// It takes too long, or a piece fits nowhere.
    pub(super) fn run(&mut self, bins: &mut [Bin]) -> Result<(), FillFailed> {
        let mut order: Vec<usize> = (0..bins.len()).filter(|at| bins[*at].seeded).collect();
        order.sort_by_key(|at| (-self.worth.of(&bins[*at].taken).whole, *at));
        for at in &order {
            self.fill_well(&mut bins[*at])?;
        }
        self.place_limited(bins)?;
        // What is left goes where nothing limits the company, many on one machine.
        order.extend((0..bins.len()).filter(|at| !bins[*at].seeded));
        order.sort_by_key(|at| (bins[*at].is_limited(), *at));
        for at in order {
            if self.left == 0 {
                break;
            }
            self.fill_with_the_rest(&mut bins[at])?;
        }
        if self.left == 0 {
            Ok(())
        } else {
            Err(FillFailed)
        }
    }

    /// Fills a machine as one of the types that come into question; the one of which least is wasted.
    fn fill_well(&mut self, bin: &mut Bin) -> Result<(), FillFailed> {
        let first = self.ladder.cheapest(&bin.taken).ok_or(FillFailed)?;
        let choices = self.choices(first);
        self.fill_best(bin, &choices)
    }

    fn choices(&self, first: usize) -> SmallVec<[usize; CHOICES]> {
        let rungs = self.ladder.rungs();
        let mut choices: SmallVec<[usize; CHOICES]> = SmallVec::new();
        let mut least = 0;
        for (at, rung) in rungs.iter().enumerate().skip(first) {
            if rung.price >= least {
                choices.push(at);
                least = rung.price + rung.price * self.manner.step / 100;
            }
            if choices.len() == CHOICES {
                break;
            }
        }
        choices
    }

    fn fill_best(&mut self, bin: &mut Bin, choices: &[usize]) -> Result<(), FillFailed> {
        let mut best: Option<(i128, usize)> = None;
        for choice in choices {
            let mut trial = bin.clone();
            let taken = self.fill(&mut trial, *choice)?;
            let price = i128::from(self.ladder.price(&trial.taken).unwrap_or(i64::MAX));
            let value = i128::from(self.worth.of(&trial.taken).whole);
            // Waste per price, in millionths.
            let waste = (price * SCALE - value) * 1_000_000 / (price * SCALE).max(1);
            self.put_back(taken);
            if best.is_none_or(|(least, _)| waste < least) {
                best = Some((waste, *choice));
            }
        }
        if let Some((_, choice)) = best {
            let taken = self.fill(bin, choice)?;
            self.left -= taken.len();
        }
        Ok(())
    }

    /// Adds pieces while any fits: those with limits first, then what is worth most and keeps resources in balance.
    fn fill(&mut self, bin: &mut Bin, rung: usize) -> Result<Vec<TakenItem>, FillFailed> {
        let mut room = self.ladder.rungs()[rung].net.clone();
        subtract(&mut room, &bin.taken);
        let mut value = self.worth.of(&room).main;
        let mut taken = Vec::new();
        let mut refused: SmallVec<[usize; 16]> = SmallVec::new();
        loop {
            let mut best: Option<((bool, i64), usize)> = None;
            for (at, size) in self.sizes.iter().enumerate() {
                if size.pieces.is_empty() || !fit(&size.amounts, &room) || refused.contains(&at) {
                    continue;
                }
                let imbalance =
                    ((value.0 - size.value.main.0) - (value.1 - size.value.main.1)).abs();
                let score = (
                    size.limited && self.manner.limited_first,
                    size.value.whole * 2 - imbalance * self.manner.balance,
                );
                if best.is_none_or(|(known, _)| score > known) {
                    best = Some((score, at));
                }
            }
            let work = u64::try_from(self.sizes.len()).unwrap_or(u64::MAX);
            self.budget = self.budget.checked_sub(work).ok_or(FillFailed)?;
            let Some((_, at)) = best else {
                return Ok(taken);
            };
            let Some(one) = self.take(at, bin) else {
                refused.push(at);
                continue;
            };
            let size = &self.sizes[at];
            subtract(&mut room, &size.amounts);
            value.0 -= size.value.main.0;
            value.1 -= size.value.main.1;
            self.put(one.piece, bin);
            taken.push(one);
        }
    }

    fn take(&mut self, size: usize, bin: &Bin) -> Option<TakenItem> {
        let pieces = &mut self.sizes[size].pieces;
        let from = pieces.len().saturating_sub(TRIES);
        let admitted = |at: &usize| {
            let piece = &self.pieces[pieces[*at]];
            bin.admits(&self.companies[piece.company])
        };
        let at = (from..pieces.len()).rev().find(admitted)?;
        let piece = pieces.swap_remove(at);
        Some(TakenItem { size, at, piece })
    }

    fn put_back(&mut self, taken: Vec<TakenItem>) {
        for one in taken.into_iter().rev() {
            let pieces = &mut self.sizes[one.size].pieces;
            pieces.push(one.piece);
            let last = pieces.len() - 1;
            pieces.swap(one.at, last);
        }
    }

    fn put(&self, piece: usize, bin: &mut Bin) {
        let piece = &self.pieces[piece];
        add(&mut bin.taken, &piece.amounts);
        bin.count(&self.companies[piece.company]);
        bin.pods.push(piece.pod);
    }

    /// Pieces that limit their company and found no place yet: where they cost least.
    fn place_limited(&mut self, bins: &mut [Bin]) -> Result<(), FillFailed> {
        let mut left: Vec<usize> = Vec::new();
        for size in self.sizes.iter_mut().filter(|size| size.limited) {
            left.append(&mut size.pieces);
        }
        left.sort_by_key(|at| (-self.worth.of(&self.pieces[*at].amounts).whole, *at));
        for at in left {
            let piece = &self.pieces[at];
            let company = &self.companies[piece.company];
            let mut best: Option<(i64, usize)> = None;
            for (bin, own) in bins.iter().enumerate() {
                if !own.admits(company) {
                    continue;
                }
                let mut total = own.taken.clone();
                let before = if own.pods.is_empty() && !own.seeded {
                    0
                } else {
                    self.ladder.price(&total).unwrap_or(0)
                };
                add(&mut total, &piece.amounts);
                if let Some(price) = self.ladder.price(&total)
                    && best.is_none_or(|(least, _)| price - before < least)
                {
                    best = Some((price - before, bin));
                }
            }
            let work = 4 * u64::try_from(bins.len()).unwrap_or(u64::MAX);
            self.budget = self.budget.checked_sub(work).ok_or(FillFailed)?;
            let (_, bin) = best.ok_or(FillFailed)?;
            self.put(at, &mut bins[bin]);
            self.left -= 1;
        }
        Ok(())
    }

    /// Fills a machine with as much of what is left as some type holds at little waste.
    fn fill_with_the_rest(&mut self, bin: &mut Bin) -> Result<(), FillFailed> {
        let mut total = bin.taken.clone();
        for size in &self.sizes {
            let count = i64::try_from(size.pieces.len()).unwrap_or(i64::MAX);
            let sum: ResourceVector = size
                .amounts
                .iter()
                .map(|each| each.saturating_mul(count))
                .collect();
            add(&mut total, &sum);
        }
        if let Some(all) = self.ladder.cheapest(&total) {
            if self.manner.together {
                return self.fill_best(bin, &[all]);
            }
            let first = self.ladder.cheapest(&bin.taken).ok_or(FillFailed)?;
            let mut choices = self.choices(first);
            choices.retain(|choice| *choice < all);
            choices.push(all);
            return self.fill_best(bin, &choices);
        }
        // No type holds it all: those that give most for their price, by what is left.
        let rungs = self.ladder.rungs();
        let mut order: Vec<usize> = (0..rungs.len())
            .filter(|at| fit(&bin.taken, &rungs[*at].net))
            .collect();
        let ratio = |at: usize| {
            let value = i128::from(self.worth.of(&rungs[at].net).whole);
            -value * 1_000_000 / (i128::from(rungs[at].price) * SCALE).max(1)
        };
        order.sort_by_key(|at| (ratio(*at), std::cmp::Reverse(*at)));
        order.truncate(CHOICES);
        self.fill_best(bin, &order)
    }
}
