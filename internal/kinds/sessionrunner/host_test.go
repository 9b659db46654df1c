package sessionrunner

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func TestHostRulesAreNamesWithPortsAndNoAddresses(t *testing.T) {
	for text, want := range map[string]string{
		"api.example.com":                               "api.example.com:443",
		"api.example.com:8443":                          "api.example.com:8443",
		"*.npmjs.org":                                   "*.npmjs.org:443",
		"*.npmjs.org:65535":                             "*.npmjs.org:65535",
		"xn--bcher-kva.example":                         "xn--bcher-kva.example:443",
		"_service.example.com":                          "_service.example.com:443",
		strings.Repeat("a.", 125) + "aaa":               strings.Repeat("a.", 125) + "aaa:443",
		"*." + strings.Repeat("a", 63) + ".example.com": "*." + strings.Repeat("a", 63) + ".example.com:443",
	} {
		rule, err := ParseHostRule(text)
		require.True(t, err == nil && rule.String() == want, "%q: %q, %v; want %q", text, rule.String(), err, want)
	}
	for _, text := range []string{
		"10.0.0.1", "10.0.0.1:443", "10.1", "0x7f.0.0.0x1", "2130706433", "1.2.3.4.5", "[::1]:443", "::1", "fe80::1",
		"localhost", "*.com", "*", "*.*.example.com", "api.*.example.com", "*api.example.com", "API.example.com",
		"api.example.com.", "api..example.com", "-api.example.com", "api.example.com:0", "api.example.com:65536",
		"api.example.com:0443", "api.example.com:+443", "api.example.com:https", "api.example.com:443:443",
		"https://api.example.com", "api.example.com/path", "user@api.example.com", "api.example.com\n", "bücher.example", "",
		strings.Repeat("a.", 126) + "aa", strings.Repeat("a", 64) + ".example.com",
	} {
		rule, err := ParseHostRule(text)
		require.True(t, err != nil, "%q is accepted as %q", text, rule.String())
	}
}

func TestWildcardAllowsSubdomainsOnly(t *testing.T) {
	rules := Rules{"default": nil}
	for _, text := range []string{"*.npmjs.org", "api.example.com", "git.example.com:8443"} {
		rule, err := ParseHostRule(text)
		require.NoError(t, err)
		rules["default"] = append(rules["default"], rule)
	}
	for target, want := range map[string]bool{
		"registry.npmjs.org:443": true, "a.b.npmjs.org:443": true, "REGISTRY.npmjs.org.:443": true,
		"npmjs.org:443": false, "evilnpmjs.org:443": false, "npmjs.org.evil.com:443": false, "registry.npmjs.org:80": false,
		"api.example.com:443": true, "www.api.example.com:443": false, "example.com:443": false,
		"git.example.com:8443": true, "git.example.com:443": false,
	} {
		address, port, _ := strings.Cut(target, ":")
		host, err := NormalizeHost(address)
		require.NoError(t, err)
		number := map[string]uint16{"443": 443, "80": 80, "8443": 8443}[port]
		got := rules.Allow("default", host, number)
		require.True(t, got == want, "%s is allowed: %t", target, got)
		require.True(t, !rules.Allow("other", host, number), "%s is allowed to a runner without rules", target)
	}
}

// Whatever a session asks for, an allowed name is a DNS name of the rule's domain, and never an address.
func FuzzHostMatching(f *testing.F) {
	for _, host := range []string{"registry.npmjs.org", "npmjs.org", "10.0.0.1", "a.npmjs.org.", "x\x00.npmjs.org", "[::1].npmjs.org", "%2e.npmjs.org"} {
		f.Add(host)
	}
	rule := HostRule{Name: "npmjs.org", Subdomains: true, Port: 443}
	f.Fuzz(func(t *testing.T, text string) {
		host, err := NormalizeHost(text)
		if err != nil {
			return
		}
		_, err = netip.ParseAddr(host)
		require.True(t, err != nil, "the address %q is a host", host)
		again, err := NormalizeHost(host)
		require.True(t, err == nil && again == host, "%q is not normalized: %q, %v", host, again, err)
		isSubdomain := strings.HasSuffix(strings.TrimSuffix(strings.ToLower(text), "."), ".npmjs.org") && !strings.ContainsAny(host, "\x00/:@[]% ")
		require.True(t, isSubdomain || !rule.Matches(host, 443), "%q is allowed as %q", text, host)
		parsed, err := ParseHostRule(host)
		require.True(t, err == nil && parsed.String() == host+":443", "%q is no rule: %v, %v", host, parsed, err)
	})
}

func TestProblemsWithHostsOfARunnerAreReported(t *testing.T) {
	runner := &v1alpha1.SessionRunner{}
	runner.Spec.Network.Egress = []v1alpha1.SessionEgress{{Hosts: []v1alpha1.EgressHost{"b.example.com", "a.example.com", "a.example.com:443"}}}
	require.True(t, len(ValidateRunner(runner)) == 0 && UsesProxy(runner) && UsesOnlyProxy(runner), "problems %q", ValidateRunner(runner))
	require.Equal(t, "a.example.com:443 b.example.com:443", strings.Join(HostRules(runner), " "))
	runner.Spec.Network.Egress = append(runner.Spec.Network.Egress, v1alpha1.SessionEgress{Profile: v1alpha1.EgressPublicOnly, Ports: testbuilder.Ports(443)})
	require.True(t, !UsesOnlyProxy(runner), "a runner with another rule uses only the proxy")
	many := slices.Repeat([]v1alpha1.EgressHost{"a.example.com"}, MaxHosts)
	runner.Spec.Network.Egress = []v1alpha1.SessionEgress{{Hosts: []v1alpha1.EgressHost{"10.0.0.1"}, Profile: v1alpha1.EgressPublicOnly}, {Hosts: many}}
	problems := ValidateRunner(runner).ToAggregate().Error()
	for _, want := range []string{`egress[0].hosts[0]: Invalid value: "10.0.0.1": it is an address`, "egress[0]: Invalid value: \"\": set exactly one of to, profile and hosts", "Too many: 257: must have at most 256"} {
		require.Contains(t, problems, want)
	}
	port := func(port intstr.IntOrString) []networkingv1.NetworkPolicyPort {
		return []networkingv1.NetworkPolicyPort{{Port: &port}}
	}
	for title, row := range map[string]struct {
		rule v1alpha1.SessionEgress
		want string
	}{
		"as many hosts as allowed":       {v1alpha1.SessionEgress{Hosts: many}, ""},
		"a profile with a port":          {v1alpha1.SessionEgress{Profile: v1alpha1.EgressPublicOnly, Ports: port(intstr.FromInt32(443))}, ""},
		"a part of a network":            {v1alpha1.SessionEgress{To: testbuilder.Block("10.0.0.0/8", "10.1.0.0/16"), Ports: port(intstr.FromInt32(443))}, ""},
		"the whole network is excepted":  {v1alpha1.SessionEgress{To: testbuilder.Block("10.0.0.0/8", "10.1.0.0/16", "10.0.0.0/8"), Ports: port(intstr.FromInt32(443))}, "egress[0].to.ipBlock.except[1]"},
		"Pods":                           {v1alpha1.SessionEgress{To: &networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{}}, Ports: port(intstr.FromInt32(443))}, ""},
		"no port":                        {v1alpha1.SessionEgress{Profile: v1alpha1.EgressPublicOnly}, "egress[0].ports"},
		"hosts with a port of their own": {v1alpha1.SessionEgress{Hosts: many[:1], Ports: port(intstr.FromInt32(443))}, "egress[0].ports"},
		"a name of a port":               {v1alpha1.SessionEgress{Profile: v1alpha1.EgressPublicOnly, Ports: port(intstr.FromString("https"))}, "egress[0].ports[0]"},
		"a range without its start":      {v1alpha1.SessionEgress{Profile: v1alpha1.EgressPublicOnly, Ports: []networkingv1.NetworkPolicyPort{{}}}, "egress[0].ports[0]"},
	} {
		runner.Spec.Network.Egress = []v1alpha1.SessionEgress{row.rule}
		got := ""
		for _, problem := range ValidateRunner(runner) {
			got += strings.TrimPrefix(problem.Field, "spec.network.")
		}
		require.True(t, got == row.want, "%s: problems with %q, want %q", title, got, row.want)
	}
	require.True(t, !UsesOnlyProxy(&v1alpha1.SessionRunner{}) && !UsesProxy(&v1alpha1.SessionRunner{}), "a runner without egress uses the proxy")
}
