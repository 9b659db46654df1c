package sessionrunner

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
)

// Config is the configuration of the egress proxy of a namespace, in its file.
type Config struct {
	// Namespace of the proxy and its sessions.
	Namespace string `json:"namespace"`
	// PublicKeys of the operator in PEM form. They verify the tokens of sessions.
	PublicKeys string `json:"publicKeys"`
	// Runners has the host rules of each SessionRunner.
	Runners map[string][]string `json:"runners"`
	// ClusterNetworks and ProxyNetworks are those of Network.
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
