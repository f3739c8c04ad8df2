//! Nodes in the order in which the scheduler tries them.

use std::cmp::Ordering;
use std::sync::Arc;

use super::StateNode;

/// Maximum number of nodes per piece: one change after a freeze copies one piece.
const PIECE: usize = 128;

/// Every node once: those without accelerators first, so that pods that need none leave them free; of these and of the others
/// initialized ones first, then by name, then by key. Cloning costs one pointer; a change after a clone copies
/// the list of pieces and one piece.
#[derive(Clone, Debug, Default)]
pub struct OrderedNodes {
    /// Sorted. No piece is empty.
    pieces: Arc<Vec<Arc<Vec<Arc<StateNode>>>>>,
}

fn order(a: &StateNode, b: &StateNode) -> Ordering {
    let key = |node: &StateNode| (node.allocatable.has_accelerators(), !node.initialized);
    key(a)
        .cmp(&key(b))
        .then_with(|| a.name().cmp(b.name()))
        .then_with(|| a.key.cmp(&b.key))
}

impl OrderedNodes {
    /// The nodes in order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<StateNode>> {
        self.pieces.iter().flat_map(|piece| piece.iter())
    }

    /// Index of the piece in which a node is, or would be.
    fn piece_of(&self, node: &StateNode) -> usize {
        let before = |piece: &Arc<Vec<Arc<StateNode>>>| {
            piece
                .last()
                .is_some_and(|last| order(last, node) == Ordering::Less)
        };
        let at = self.pieces.partition_point(before);
        at.min(self.pieces.len().saturating_sub(1))
    }

    /// Inserts a node, which must not be present.
    pub fn insert(&mut self, node: Arc<StateNode>) {
        let at = self.piece_of(&node);
        let pieces = Arc::make_mut(&mut self.pieces);
        let Some(piece) = pieces.get_mut(at) else {
            pieces.push(Arc::new(vec![node]));
            return;
        };
        let piece = Arc::make_mut(piece);
        let place = piece.partition_point(|each| order(each, &node) == Ordering::Less);
        piece.insert(place, node);
        if piece.len() > PIECE {
            let rest = piece.split_off(PIECE / 2);
            pieces.insert(at + 1, Arc::new(rest));
        }
    }

    /// Removes a node; it must equal the inserted one.
    pub fn remove(&mut self, node: &StateNode) {
        let at = self.piece_of(node);
        let Some(Ok(place)) = self
            .pieces
            .get(at)
            .map(|piece| piece.binary_search_by(|each| order(each, node)))
        else {
            return;
        };
        let pieces = Arc::make_mut(&mut self.pieces);
        let Some(piece) = pieces.get_mut(at) else {
            return;
        };
        Arc::make_mut(piece).remove(place);
        if piece.is_empty() {
            pieces.remove(at);
        }
    }
}
