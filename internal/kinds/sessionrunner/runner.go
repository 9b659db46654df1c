package sessionrunner

import (
	"fmt"
	"slices"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// MaxHosts is the number of host rules of a SessionRunner: those of all runners of a namespace must fit into a
// ConfigMap.
const MaxHosts = 256

// UsesProxy reports whether a SessionRunner allows hosts by name.
func UsesProxy(runner *v1alpha1.SessionRunner) bool {
	return slices.ContainsFunc(runner.Spec.Egress, hasHosts)
}

// UsesOnlyProxy reports whether a SessionRunner allows hosts by name and nothing else, so that its sessions need no
// DNS.
func UsesOnlyProxy(runner *v1alpha1.SessionRunner) bool {
	return len(runner.Spec.Egress) > 0 &&
		!slices.ContainsFunc(runner.Spec.Egress, func(rule v1alpha1.SessionEgress) bool { return !hasHosts(rule) })
}

func hasHosts(rule v1alpha1.SessionEgress) bool { return len(rule.Hosts) > 0 }

// HostRules returns the host rules of a SessionRunner, sorted and without duplicates. Invalid ones are left out.
func HostRules(runner *v1alpha1.SessionRunner) []string {
	var rules []string
	for i := range runner.Spec.Egress {
		for _, text := range runner.Spec.Egress[i].Hosts {
			if rule, err := ParseHostRule(string(text)); err == nil {
				rules = append(rules, rule.String())
			}
		}
	}
	slices.Sort(rules)
	return slices.Compact(rules)
}

// ValidateRunner returns the problems with a SessionRunner's host rules. The CRD rejects most of them, but an older
// CRD may not.
func ValidateRunner(runner *v1alpha1.SessionRunner) []string {
	var problems []string
	total := 0
	for i := range runner.Spec.Egress {
		rule := &runner.Spec.Egress[i]
		total += len(rule.Hosts)
		if len(rule.Hosts) > 0 && (rule.CIDR != "" || rule.Profile != "" || rule.To != nil || len(rule.Ports) > 0) {
			problems = append(problems, fmt.Sprintf("egress[%d]: hosts excludes cidr, profile, to and ports", i))
		}
		for _, host := range rule.Hosts {
			if _, err := ParseHostRule(string(host)); err != nil {
				problems = append(problems, fmt.Sprintf("egress[%d]: host %q is invalid: %s", i, host, err))
			}
		}
	}
	if total > MaxHosts {
		problems = append(problems, fmt.Sprintf("egress: %d hosts, more than %d", total, MaxHosts))
	}
	return problems
}
