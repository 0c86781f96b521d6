//! Disjoint sets.

/// Sets of nodes that are joined.
///
/// - R. E. Tarjan: "Efficiency of a Good But Not Linear Set Union Algorithm", Journal of the ACM 22(2), 1975.
pub(super) struct DisjointSets(Vec<usize>);

impl DisjointSets {
    pub fn new(nodes: usize) -> Self {
        Self((0..nodes).collect())
    }

    pub fn root(&mut self, mut node: usize) -> usize {
        while self.0[node] != node {
            self.0[node] = self.0[self.0[node]];
            node = self.0[node];
        }
        node
    }

    /// Joins the sets of two nodes. The lower root stays.
    pub fn join(&mut self, one: usize, other: usize) {
        let (one, other) = (self.root(one), self.root(other));
        self.0[one.max(other)] = one.min(other);
    }
}
