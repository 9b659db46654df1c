// Package networkcheck finds out whether the cluster's network enforces the NetworkPolicies of sessions. Many network plugins accept
// NetworkPolicies and ignore them.
//
// The operator listens on two ports of one address (prober.Server). The NetworkPolicy of a session allows the control port and not
// the denied port. Before the agent starts, an init container of its Pod connects to both at the same time (prober.Check). Conditions
// that affect both ports, such as routes, name resolution and the state of the operator, cannot change the result: only the reply of
// the control port makes the silence of the denied port meaningful.
//
// This package has the constants that the operator and the check share. Package prober has the connections.
package networkcheck
