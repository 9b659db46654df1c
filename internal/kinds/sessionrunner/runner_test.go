package sessionrunner

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/kstatustest"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func TestTheAPIServerIsAllowedByItsServiceAndItsEndpoints(t *testing.T) {
	service := func(addresses ...string) *corev1.Service {
		return &corev1.Service{Spec: corev1.ServiceSpec{ClusterIPs: addresses, Ports: []corev1.ServicePort{{Port: 443}}}}
	}
	slice := func(port *int32, addresses ...string) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{Ports: []discoveryv1.EndpointPort{{Port: port}}}
		for _, address := range addresses {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}})
		}
		return s
	}
	var many []string
	for i := range 200 {
		many = append(many, fmt.Sprintf("10.0.0.%d", i))
	}
	check := func(name string, service *corev1.Service, endpoints *discoveryv1.EndpointSlice, want string) {
		t.Run(name, func(t *testing.T) {
			var rules []string
			for _, rule := range AllowAPIServer(service, endpoints) {
				var cidrs []string
				for _, peer := range rule.To {
					cidrs = append(cidrs, peer.IPBlock.CIDR)
				}
				rules = append(rules, fmt.Sprintf("%s: %s", rule.Ports[0].Port, strings.Join(cidrs, " ")))
			}
			require.Equal(t, want, strings.Join(rules, "; "))
		})
	}
	check("both", service("10.96.0.1"), slice(new(int32(6443)), "192.0.2.9", "192.0.2.8", "192.0.2.9"), "443: 10.96.0.1/32; 6443: 192.0.2.8/32 192.0.2.9/32")
	check("IPv6", service("10.96.0.1", "fd00::1"), slice(nil), "443: 10.96.0.1/32 fd00::1/128")
	check("unknown", &corev1.Service{}, slice(nil), "")
	check("no address allows none", service("None"), slice(new(int32(6443))), "")
	check("no port allows none", &corev1.Service{}, slice(nil, "192.0.2.8"), "")
	check("names and zones are ignored", &corev1.Service{}, slice(new(int32(6443)), "api.example", "fe80::1%eth0"), "")
	require.Equal(t, maxAPIServerAddresses, len(AllowAPIServer(&corev1.Service{}, slice(new(int32(1)), many...))[0].To))
}

// The proxy checks addresses itself, and its NetworkPolicy is a second check, so neither must be wider. The profile PublicOnly allows
// what the proxy may reach besides its own networks.
func TestProxyReachesOnlyPublicAddresses(t *testing.T) {
	prefix := netip.MustParsePrefix
	network := Network{
		ClusterNetworks: []netip.Prefix{prefix("34.0.0.0/8"), prefix("2600::/16")},
		ProxyNetworks:   parsePrefixes("10.9.0.0/16", "fd00::/16", "fd12::/32", "100.64.0.0/10", "169.254.0.0/16", "168.63.129.16/32"),
	}
	contains := func(peers []networkingv1.NetworkPolicyPeer, address netip.Addr) bool {
		return slices.ContainsFunc(peers, func(peer networkingv1.NetworkPolicyPeer) bool {
			isExcepted := slices.ContainsFunc(peer.IPBlock.Except, func(except string) bool { return prefix(except).Contains(address) })
			return prefix(peer.IPBlock.CIDR).Contains(address) && !isExcepted
		})
	}
	for text, want := range map[string]bool{
		"8.8.8.8": true, "2001:4860:4860::8888": true, "::ffff:8.8.8.8": true, "172.15.255.255": true, "172.32.0.1": true, "100.63.0.1": true,
		"10.9.1.2": true, "::ffff:10.9.1.2": true, "fd00::1": true, "fd12::1": true, "100.64.0.1": true, "203.0.113.1": false, "fd20:ce::254": false,
		"10.0.0.1": false, "172.16.0.1": false, "172.31.255.255": false, "192.168.1.1": false, "127.0.0.1": false, "0.0.0.0": false, "0.1.2.3": false,
		"169.254.169.254": false, "168.63.129.16": false, "100.100.100.200": false, "192.0.0.192": false, "198.18.0.1": false,
		"224.0.0.1": false, "255.255.255.255": false, "34.1.2.3": false, "192.0.2.1": false,
		"::": false, "::1": false, "fe80::1": false, "2001:4860:4860::8888%eth0": false, "fc00::1": false, "fd00:ec2::254": false, "ff02::1": false, "2600::1": false,
		"::ffff:127.0.0.1": false, "::ffff:169.254.169.254": false, "::127.0.0.1": false,
		"64:ff9b::8.8.8.8": false, "64:ff9b::a9fe:a9fe": false, "64:ff9b:1::7f00:1": false, // NAT64
		"2002:7f00:1::": false, "2002:a9fe:a9fe::": false, // 6to4
		"2001::1": false, "2001:db8::1": false, "fec0::1": false, // Teredo, documentation, site-local
	} {
		address := netip.MustParseAddr(text)
		isOfProxy := slices.ContainsFunc(network.ProxyNetworks, func(p netip.Prefix) bool { return p.Contains(address.Unmap()) })
		byProxy, byPolicy := network.AllowsProxy(address), contains(network.ProxyPeers(), address.Unmap())
		isPublic := contains(network.PublicPeers(), address.Unmap())
		require.True(t, byProxy == want && byPolicy == want && isPublic == (want && !isOfProxy),
			"%s: the proxy allows it: %t, its policy: %t, it is public: %t", text, byProxy, byPolicy, isPublic)
	}
}

func TestNetworksThatArePartsOfOthers(t *testing.T) {
	nested := []string{"10.0.0.0/8", "10.1.0.0/16", "10.1.0.0/24"} // each contains the next
	for i, inner := range slices.Concat(nested, []string{"11.0.0.0/8", "2001:db8::/32", "x", ""}) {
		for j, outer := range slices.Concat(nested, []string{"11.0.0.0/8", "2001:db8::/32", "x", ""}) {
			isProper := i < len(nested) && j < i
			isEqual := i == j && inner != "x" && inner != ""
			require.True(t, IsSubnet(inner, outer) == isProper, "%q is a proper part of %q: want %t", inner, outer, isProper)
			require.True(t, IsSubnetOrEqual(inner, outer) == (isProper || isEqual), "%q is a part of %q: want %t", inner, outer, isProper || isEqual)
		}
	}
	parse := parsePrefixes("10.1.2.0/24", "10.2.0.0/16", "11.0.0.0/8", "10.0.0.0/8")
	wantBlock := networkingv1.IPBlock{CIDR: "10.0.0.0/8", Except: []string{"10.1.0.0/16", "10.2.0.0/16"}} // the denied part once
	require.Equal(t, wantBlock, *BlockWithout("10.0.0.0/8", []string{"10.1.0.0/16"}, parse).IPBlock)
	for cidr, want := range map[string]bool{
		"8.8.8.0/24": true, "8.8.8.8/32": true, "10.0.0.0/8": false, "8.0.0.0/5": false, "0.0.0.0/0": false, "2001:4860::/32": false, "x": false,
	} {
		require.True(t, IsPublicIPv4(cidr) == want, "%s is public: want %t", cidr, want)
	}
}

func TestNamesAreResolvedByTheDNSOfTheCluster(t *testing.T) {
	check := func(title string, network Network, want string) {
		rule, blocks := network.AllowDNS(), []string{}
		for _, peer := range rule.To[1:] {
			blocks = append(blocks, peer.IPBlock.CIDR)
		}
		got := fmt.Sprintf("%s %s %v", rule.To[0].NamespaceSelector.MatchLabels[corev1.LabelMetadataName], metav1.FormatLabelSelector(rule.To[0].PodSelector), blocks)
		for _, port := range rule.Ports {
			got += fmt.Sprintf(" %s %s", *port.Protocol, port.Port)
		}
		require.True(t, got == want, "%s: %s, want %s", title, got, want)
	}
	check("by default", Network{}, "kube-system k8s-app=kube-dns [] UDP 53 TCP 53")
	check("of its own", Network{DNSNamespace: "dns", DNSSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}, DNSNetworks: parsePrefixes("169.254.20.10/32"), DNSPort: 5353},
		"dns a=b [169.254.20.10/32] UDP 5353 TCP 5353")
}

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
	check := func(title string, rule v1alpha1.SessionEgress, want string) {
		runner.Spec.Network.Egress = []v1alpha1.SessionEgress{rule}
		got := ""
		for _, problem := range ValidateRunner(runner) {
			got += strings.TrimPrefix(problem.Field, "spec.network.")
		}
		require.True(t, got == want, "%s: problems with %q, want %q", title, got, want)
	}
	check("as many hosts as allowed", v1alpha1.SessionEgress{Hosts: many}, "")
	check("a profile with a port", v1alpha1.SessionEgress{Profile: v1alpha1.EgressPublicOnly, Ports: port(intstr.FromInt32(443))}, "")
	check("a part of a network", v1alpha1.SessionEgress{To: testbuilder.Block("10.0.0.0/8", "10.1.0.0/16"), Ports: port(intstr.FromInt32(443))}, "")
	check("the whole network is excepted", v1alpha1.SessionEgress{To: testbuilder.Block("10.0.0.0/8", "10.1.0.0/16", "10.0.0.0/8"), Ports: port(intstr.FromInt32(443))}, "egress[0].to.ipBlock.except[1]")
	check("Pods", v1alpha1.SessionEgress{To: &networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{}}, Ports: port(intstr.FromInt32(443))}, "")
	check("no port", v1alpha1.SessionEgress{Profile: v1alpha1.EgressPublicOnly}, "egress[0].ports")
	check("hosts with a port of their own", v1alpha1.SessionEgress{Hosts: many[:1], Ports: port(intstr.FromInt32(443))}, "egress[0].ports")
	check("a name of a port", v1alpha1.SessionEgress{Profile: v1alpha1.EgressPublicOnly, Ports: port(intstr.FromString("https"))}, "egress[0].ports[0]")
	check("a range without its start", v1alpha1.SessionEgress{Profile: v1alpha1.EgressPublicOnly, Ports: []networkingv1.NetworkPolicyPort{{}}}, "egress[0].ports[0]")
	require.True(t, !UsesOnlyProxy(&v1alpha1.SessionRunner{}) && !UsesProxy(&v1alpha1.SessionRunner{}), "a runner without egress uses the proxy")
}

// The rows are those of docs/conditions.md.
func TestConditionsOfEachStateOfASessionRunner(t *testing.T) {
	hosts := []v1alpha1.SessionEgress{{Hosts: []v1alpha1.EgressHost{"api.example.com"}}}
	missing := func(kind string) []Reference { return []Reference{{kind, "a", "spec.field"}} }
	for title, test := range map[string]struct {
		egress  []v1alpha1.SessionEgress
		errors  field.ErrorList
		missing []Reference
		policy  string
		proxy   decision.State
		ready   metav1.ConditionStatus
		reason  string
		want    status.Status
	}{
		"sessions can use it":                {ready: metav1.ConditionTrue, reason: v1alpha1.ReasonReady, want: status.CurrentStatus},
		"its spec is invalid":                {errors: field.ErrorList{field.Required(field.NewPath("spec"), "")}, missing: missing("ConfigMap"), ready: metav1.ConditionFalse, reason: v1alpha1.ReasonInvalid, want: status.FailedStatus},
		"a ConfigMap does not exist":         {missing: missing("ConfigMap"), ready: metav1.ConditionFalse, reason: v1alpha1.ReasonConfigMapNotFound, want: status.InProgressStatus},
		"an admission policy does not exist": {missing: missing("ConfigMap"), policy: "a does not exist", ready: metav1.ConditionFalse, reason: v1alpha1.ReasonUnprotected, want: status.InProgressStatus},
		"a claim does not exist":             {missing: missing("PersistentVolumeClaim"), ready: metav1.ConditionFalse, reason: v1alpha1.ReasonClaimNotFound, want: status.InProgressStatus},
		"its ServiceAccount does not exist":  {missing: missing("ServiceAccount"), ready: metav1.ConditionFalse, reason: v1alpha1.ReasonServiceAccountNotFound, want: status.InProgressStatus},
		"its proxy is ready":                 {egress: hosts, proxy: decision.True(v1alpha1.ReasonEgressProxyReady, ""), ready: metav1.ConditionTrue, reason: v1alpha1.ReasonReady, want: status.CurrentStatus},
		"its proxy is being rolled out":      {egress: hosts, proxy: decision.False(v1alpha1.ReasonEgressProxyStarting, "0 of 2"), ready: metav1.ConditionFalse, reason: v1alpha1.ReasonEgressProxyStarting, want: status.InProgressStatus},
		"no proxy can run":                   {egress: hosts, proxy: decision.False(v1alpha1.ReasonEgressProxyUnavailable, "no image"), ready: metav1.ConditionFalse, reason: v1alpha1.ReasonEgressProxyUnavailable, want: status.FailedStatus},
		"its proxy is refused":               {egress: hosts, proxy: decision.False(v1alpha1.ReasonEgressProxyRefused, "refused"), ready: metav1.ConditionFalse, reason: v1alpha1.ReasonEgressProxyRefused, want: status.FailedStatus},
	} {
		t.Run(title, func(t *testing.T) {
			runner := &v1alpha1.SessionRunner{
				TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "SessionRunner"}, ObjectMeta: metav1.ObjectMeta{Name: "default", Generation: 3},
			}
			runner.Status.ObservedGeneration = -1
			kstatustest.AssertKstatus(t, runner, status.InProgressStatus)
			runner.Spec.Network.Egress = test.egress
			runner.Status = Decide(&Observation{Runner: runner, Now: time.Now(), Errors: test.errors, Missing: test.missing, Unprotected: test.policy, Proxy: test.proxy})
			kstatustest.AssertKstatus(t, runner, test.want)
			ready := meta.FindStatusCondition(runner.Status.Conditions, v1alpha1.ConditionReady)
			require.True(t, ready.Status == test.ready && ready.Reason == test.reason, "%+v", ready)
			saysWhat := len(test.missing) > 0 && len(test.errors) == 0 && test.policy == ""
			require.True(t, !saysWhat || strings.Contains(ready.Message, " a of spec.field does not exist"), "message %q", ready.Message)
			hasProxy := meta.FindStatusCondition(runner.Status.Conditions, v1alpha1.ConditionEgressProxyReady) != nil
			require.True(t, hasProxy == (test.egress != nil), "%+v", runner.Status.Conditions)
		})
	}
}

func TestTheStatusOfASessionRunnerKeepsTheAddressOfItsProxy(t *testing.T) {
	runner := &v1alpha1.SessionRunner{}
	runner.Spec.Network.Egress = []v1alpha1.SessionEgress{{Hosts: []v1alpha1.EgressHost{"api.example.com"}}}
	for _, test := range []struct{ observed, want string }{{"10.96.0.9:3128", "10.96.0.9:3128"}, {"", "10.96.0.9:3128"}} {
		runner.Status = Decide(&Observation{Runner: runner, Now: time.Now(), Address: test.observed, Proxy: decision.False(v1alpha1.ReasonEgressProxyStarting, "")})
		require.True(t, runner.Status.EgressProxyAddress == test.want, "address %q", runner.Status.EgressProxyAddress)
	}
	runner.Spec.Network.Egress[0].Hosts[0] = "10.0.0.1"
	runner.Status = Decide(&Observation{Runner: runner, Now: time.Now(), Proxy: decision.True(v1alpha1.ReasonEgressProxyReady, "")})
	condition := decision.FindReason(runner.Status.Conditions, v1alpha1.ConditionEgressProxyReady, v1alpha1.ReasonHostsInvalid)
	require.True(t, condition != nil && condition.Status == metav1.ConditionFalse, "conditions %+v with an invalid host", runner.Status.Conditions)
	runner.Spec.Network.Egress = nil
	status := Decide(&Observation{Runner: runner, Now: time.Now()})
	remains := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionEgressProxyReady) != nil
	require.True(t, !remains && status.EgressProxyAddress == "", "without hosts, the status of a proxy remains: %+v", status)
}

func TestObjectsThatASessionRunnerNeedsAreFoundExceptSecrets(t *testing.T) {
	runner := &v1alpha1.SessionRunner{}
	spec := &runner.Spec
	testbuilder.RunnerPod(spec).ServiceAccountName = "caller"
	testbuilder.RunnerPod(spec).ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
	fromConfigMap := func(name string, optional bool) corev1.EnvVar {
		return corev1.EnvVar{Name: "A", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: "a", Optional: &optional,
		}}}
	}
	sidecar := corev1.Container{Name: "cache", Env: []corev1.EnvVar{{Name: "B", Value: "b"}, fromConfigMap("unused", true), fromConfigMap("settings", false)}}
	testbuilder.RunnerPod(spec).InitContainers = []corev1.Container{sidecar}
	testbuilder.MountVolume(spec, "docs", "/docs", testbuilder.ConfigMapVolume("docs"))
	testbuilder.MountVolume(spec, "models", "/models", testbuilder.ClaimVolume("models"))
	testbuilder.MountVolume(spec, "keys", "/keys", testbuilder.SecretVolume("keys"))
	testbuilder.MountVolume(spec, "extra", "/extra", testbuilder.ConfigMapVolume("extra"))
	testbuilder.RunnerPod(spec).Volumes[3].ConfigMap.Optional = new(true)
	testbuilder.MountVolume(spec, "nameless", "/nameless", testbuilder.ConfigMapVolume(""))
	testbuilder.MountVolume(spec, "invalid", "/invalid", testbuilder.ClaimVolume("a/b"))
	spec.CABundle = &v1alpha1.KeyReference{LocalReference: v1alpha1.LocalReference{Name: "cas"}}
	spec.Archive = &v1alpha1.SessionArchive{Archive: v1alpha1.Archive{ClaimRef: &v1alpha1.LocalReference{Name: "transcripts"}}}
	spec.Model = &v1alpha1.SessionModel{Prices: &v1alpha1.KeyReference{LocalReference: v1alpha1.LocalReference{Name: "prices"}}}
	spec.Git = &v1alpha1.SessionGit{SecretRef: &v1alpha1.LocalReference{Name: "forge"}}
	want := []Reference{
		{"ServiceAccount", "caller", "spec.template.spec.serviceAccountName"},
		{"ConfigMap", "docs", "spec.template.spec.volumes[0].configMap.name"},
		{"PersistentVolumeClaim", "models", "spec.template.spec.volumes[1].persistentVolumeClaim.claimName"},
		{"ConfigMap", "settings", "spec.template.spec.initContainers[0].env[2].valueFrom.configMapKeyRef.name"},
		{"ConfigMap", "cas", "spec.caBundle.name"},
		{"ConfigMap", "prices", "spec.model.prices.name"},
		{"PersistentVolumeClaim", "transcripts", "spec.archive.claimRef.name"},
	}
	require.Equal(t, want, References(runner))
	spec.Model.Prices, spec.Archive.ClaimRef = nil, nil
	require.Equal(t, want[:5], References(runner))
}
