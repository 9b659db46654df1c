// Package prober has both ends of the connections that check whether NetworkPolicies are enforced: see package networkcheck.
package prober
