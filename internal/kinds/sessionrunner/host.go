package sessionrunner

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

const (
	// DefaultPort is the port of a host rule without one.
	DefaultPort = 443
	// MaxHostBytes is the length of a host rule: of a DNS name, a wildcard and a port.
	MaxHostBytes = 261
	// maxNameBytes is the length of a DNS name.
	maxNameBytes = 253
	// wildcard begins a rule for all subdomains.
	wildcard = "*."
)

// namePattern matches a DNS name of two or more labels. Its last label begins with a letter, so no form of an
// IP address matches: not 10.0.0.1, and not 0xa000001 or 10.1 either.
var namePattern = regexp.MustCompile(`^([a-z0-9_]([-a-z0-9_]{0,61}[a-z0-9_])?\.)+[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`)

// HostRule allows connections to a port of a host, or of all subdomains of a domain.
type HostRule struct {
	// Name of the host, or of the domain whose subdomains are allowed, in lower case.
	Name string
	// Subdomains means that all subdomains of Name are allowed, and Name itself is not.
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
	switch {
	case isAddress(name):
		return errors.New("it is an address; use cidr for addresses")
	case len(name) > maxNameBytes || !namePattern.MatchString(name):
		return errors.New("it is not a DNS name in lower case with at least two labels, such as api.example.com or *.example.com")
	}
	return nil
}

func isAddress(name string) bool {
	_, err := netip.ParseAddr(strings.Trim(name, "[]"))
	return err == nil
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
	if port != r.Port {
		return false
	}
	if r.Subdomains {
		return strings.HasSuffix(host, "."+r.Name)
	}
	return host == r.Name
}

// NormalizeHost returns the name of a host in the form in which rules are compared: in lower case and without the
// dot at its end. It returns an error for addresses, and for everything else that is not a DNS name.
func NormalizeHost(host string) (string, error) {
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	return name, checkName(name)
}
