// Package prober connects, and is connected to, to find out whether NetworkPolicies are enforced: see package networkcheck.
package prober
