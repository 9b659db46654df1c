// Package sessionrunner decides which hosts sessions can reach by name through the egress proxy: it parses and matches host
// rules, and decides which addresses a name may resolve to.
//
// It is pure. The operator and the proxy share it: the operator validates SessionRunners and writes the proxy's configuration,
// and the proxy enforces it.
package sessionrunner

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

const (
	// DefaultPort is the port of a host rule without one.
	DefaultPort = 443
	// MaxHostBytes is the length of a host rule: a DNS name, a wildcard and a port.
	MaxHostBytes = 261
	// maxNameBytes is the length of a DNS name.
	maxNameBytes = 253
	// wildcard begins a rule for all subdomains.
	wildcard = "*."
)

// namePattern matches a DNS name of two or more labels. Its last label begins with a letter, so no form of an IP address
// matches: neither 10.0.0.1 nor 0xa000001 nor 10.1.
var namePattern = regexp.MustCompile(`^([a-z0-9_]([-a-z0-9_]{0,61}[a-z0-9_])?\.)+[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`)

// HostRule allows connections to a port of a host, or of all subdomains of a domain.
type HostRule struct {
	// Name of the host, or of the domain whose subdomains are allowed, in lower case.
	Name string
	// Subdomains means that all subdomains of Name are allowed, but not Name itself.
	Subdomains bool
	Port       uint16
}

// ParseHostRule parses host, host:port, *.domain or *.domain:port.
func ParseHostRule(text string) (HostRule, error) {
	rule := HostRule{Port: DefaultPort}
	name, port, hasPort := strings.Cut(text, ":")
	if hasPort {
		number, err := strconv.ParseUint(port, 10, 16)
		if err != nil || number == 0 || port[0] == '0' {
			return HostRule{}, fmt.Errorf("%q is not a port from 1 to 65535", port)
		}
		rule.Port = uint16(number)
	}
	rule.Name, rule.Subdomains = strings.CutPrefix(name, wildcard)
	return rule, checkName(rule.Name)
}

func checkName(name string) error {
	_, err := netip.ParseAddr(strings.Trim(name, "[]"))
	switch {
	case err == nil:
		return errors.New("it is an address; use an ipBlock for addresses")
	case len(name) > maxNameBytes || !namePattern.MatchString(name):
		return errors.New("it is not a DNS name in lower case with at least two labels, such as api.example.com or *.example.com")
	}
	return nil
}

// String returns the rule in the form that ParseHostRule parses.
func (r HostRule) String() string {
	name := r.Name
	if r.Subdomains {
		name = wildcard + name
	}
	return name + ":" + strconv.Itoa(int(r.Port))
}

// Matches reports whether the rule allows a connection to a port of a host, whose name is normalized.
func (r HostRule) Matches(host string, port uint16) bool {
	isHost := host == r.Name
	if r.Subdomains {
		isHost = strings.HasSuffix(host, "."+r.Name)
	}
	return isHost && port == r.Port
}

// NormalizeHost returns the name of a host in the form in which rules are compared: in lower case and without the dot at its
// end. It returns an error for everything that is not a DNS name, such as an address.
func NormalizeHost(host string) (string, error) {
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	return name, checkName(name)
}

// MaxHosts is the number of host rules of a SessionRunner: the rules of all runners of a namespace must fit into a ConfigMap.
const MaxHosts = 256

// UsesProxy reports whether a SessionRunner allows hosts by name.
func UsesProxy(runner *v1alpha1.SessionRunner) bool {
	return slices.ContainsFunc(runner.Spec.Network.Egress, hasHosts)
}

// UsesOnlyProxy reports whether a SessionRunner allows hosts by name and nothing else, so that its sessions need no DNS.
func UsesOnlyProxy(runner *v1alpha1.SessionRunner) bool {
	return len(runner.Spec.Network.Egress) > 0 &&
		!slices.ContainsFunc(runner.Spec.Network.Egress, func(rule v1alpha1.SessionEgress) bool { return !hasHosts(rule) })
}

func hasHosts(rule v1alpha1.SessionEgress) bool { return len(rule.Hosts) > 0 }

// HostRules returns the valid host rules of a SessionRunner, sorted and without duplicates.
func HostRules(runner *v1alpha1.SessionRunner) []string {
	var rules []string
	for i := range runner.Spec.Network.Egress {
		for _, text := range runner.Spec.Network.Egress[i].Hosts {
			if rule, err := ParseHostRule(string(text)); err == nil {
				rules = append(rules, rule.String())
			}
		}
	}
	slices.Sort(rules)
	return slices.Compact(rules)
}

// ValidateRunner returns the errors of a SessionRunner's rules for connections. The CRD rejects most of them, but an older CRD
// may not.
func ValidateRunner(runner *v1alpha1.SessionRunner) field.ErrorList {
	var errs field.ErrorList
	rules := field.NewPath("spec", "network", "egress")
	total := 0
	for i := range runner.Spec.Network.Egress {
		rule, at := &runner.Spec.Network.Egress[i], rules.Index(i)
		total += len(rule.Hosts)
		peers := 0
		for _, given := range []bool{rule.To != nil, rule.Profile != "", len(rule.Hosts) > 0} {
			if given {
				peers++
			}
		}
		if peers != 1 {
			errs = append(errs, field.Invalid(at, "", "set exactly one of to, profile and hosts"))
		}
		if (len(rule.Hosts) > 0) == (len(rule.Ports) > 0) {
			errs = append(errs, field.Invalid(at.Child("ports"), "", "set ports, or hosts with their ports"))
		}
		for j, host := range rule.Hosts {
			if _, err := ParseHostRule(string(host)); err != nil {
				errs = append(errs, field.Invalid(at.Child("hosts").Index(j), string(host), err.Error()))
			}
		}
		for j, port := range rule.Ports {
			if port.Port == nil || port.Port.Type != intstr.Int {
				errs = append(errs, field.Invalid(at.Child("ports").Index(j), port.Port, "the port must be a number"))
			}
		}
		if rule.To != nil && rule.To.IPBlock != nil {
			for j, except := range rule.To.IPBlock.Except {
				if !IsSubnet(except, rule.To.IPBlock.CIDR) {
					errs = append(errs, field.Invalid(at.Child("to", "ipBlock", "except").Index(j), except, "it is not a part of "+rule.To.IPBlock.CIDR))
				}
			}
		}
	}
	if total > MaxHosts {
		errs = append(errs, field.TooMany(rules, total, MaxHosts))
	}
	return errs
}

// Config is the configuration file of the egress proxy of a namespace.
type Config struct {
	// Namespace of the proxy and its sessions.
	Namespace string `json:"namespace"`
	// PublicKeys of the operator in PEM form, which verify the tokens of sessions.
	PublicKeys string `json:"publicKeys"`
	// Runners has the host rules of each SessionRunner.
	Runners map[string][]string `json:"runners"`
	// ClusterNetworks and ProxyNetworks are the fields of Network.
	ClusterNetworks []netip.Prefix `json:"clusterNetworks,omitempty"`
	ProxyNetworks   []netip.Prefix `json:"proxyNetworks,omitempty"`
}

// Rules are the host rules of each SessionRunner of a namespace.
type Rules map[string][]HostRule

// ParseConfig parses the file of a Config.
func ParseConfig(raw []byte) (*Config, Rules, error) {
	config := &Config{}
	if err := json.Unmarshal(raw, config); err != nil {
		return nil, nil, fmt.Errorf("parsing the configuration: %w", err)
	}
	rules := Rules{}
	for runner, texts := range config.Runners {
		rules[runner] = make([]HostRule, 0, len(texts))
		for _, text := range texts {
			rule, err := ParseHostRule(text)
			if err != nil {
				return nil, nil, fmt.Errorf("host %q of SessionRunner %s: %w", text, runner, err)
			}
			rules[runner] = append(rules[runner], rule)
		}
	}
	return config, rules, nil
}

// Allow reports whether a SessionRunner allows a connection to a port of a host, whose name is normalized.
func (r Rules) Allow(runner, host string, port uint16) bool {
	return slices.ContainsFunc(r[runner], func(rule HostRule) bool { return rule.Matches(host, port) })
}
