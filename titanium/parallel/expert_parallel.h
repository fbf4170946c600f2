// Expert parallelism: the exchange of rows between tokens and experts, and counts over all tokens.
#pragma once

#include <memory>

#include "titanium/ops/experts/expert_exchange.h"
#include "titanium/ops/experts/router_losses.h"
#include "titanium/parallel/mesh.h"

namespace titanium::parallel {

// Note [Tokens and experts]
// Where the rows of a layer of experts come from follows from the degrees (tp tensor, ep expert, etp expert tensor):
//   tp = 1            A rank's tokens are its own. With ep > 1 rows go to the ranks that have their experts, and back.
//   tp > 1, ep = 1    Every rank has a part of each expert (columns of w1 and w3, rows of w2). All rows are gathered
//                     and routed alike on every rank, and partial sums are reduced and scattered.
//   tp > 1, etp = 1   Experts are whole. Each rank routes its own rows: expert parallelism borrows the ranks of tensor
//                     parallelism, and nothing is computed twice.
//   tp > 1, etp = tp  As in the second case, but the gathered rows go to the ranks that have a part of their expert.
bool cuts_experts(const ParallelDims& dims);  // the second and the last case

// The exchange of rows over the expert axis; null where that has one rank.
std::unique_ptr<ops::ExpertExchange> make_expert_exchange(const Mesh& mesh);
std::unique_ptr<ops::ExpertExchange> make_expert_exchange(comm::GroupPtr group);

// How the rows that this rank routes belong to sequences, for losses of routers: `first_row` is the place among the
// ranks that route rows of their own, in units of these. `mesh` outlives it.
ops::RouterLosses router_losses(double balance, double z, const Mesh& mesh);

// Adds up what ranks have counted over the tokens that each of them has routed, in place. Every token counts once.
void sum_over_routed_tokens(const Tensor& counts, const Mesh& mesh);

}  // namespace titanium::parallel
