package workload

import (
	"net/netip"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	psaapi "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/sessionrunner"
	"github.com/yardmaster/yardmaster/test/require"
)

func newProxy(hosts ...v1alpha1.EgressHost) *Proxy {
	runner := v1alpha1.SessionRunner{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	runner.Spec.Network.Egress = []v1alpha1.SessionEgress{{Hosts: hosts}}
	return &Proxy{
		Namespace: "team", Image: "yardmaster:1", PublicKeys: "key",
		Network: &sessionrunner.Network{ProxyNetworks: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}}, Runners: []v1alpha1.SessionRunner{runner},
	}
}

func TestProxyMeetsTheRestrictedStandardAndHasNoToken(t *testing.T) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	require.NoError(t, err)
	pod := newProxy("api.example.com").Deployment().Spec.Template
	for _, result := range evaluator.EvaluatePod(psaapi.LevelVersion{Level: psaapi.LevelRestricted, Version: psaapi.LatestVersion()}, &pod.ObjectMeta, &pod.Spec) {
		require.True(t, result.Allowed, "%s: %s", result.ForbiddenReason, result.ForbiddenDetail)
	}
	require.True(t, !*pod.Spec.AutomountServiceAccountToken, "the proxy has a token")
	for _, amounts := range []corev1.ResourceList{pod.Spec.Containers[0].Resources.Requests, pod.Spec.Containers[0].Resources.Limits} {
		require.True(t, len(amounts) == 3, "resources %v", amounts)
	}
}

func TestChangedConfigurationIsANewRevision(t *testing.T) {
	first := newProxy("api.example.com")
	hash := func(p *Proxy) string { return p.Deployment().Spec.Template.Spec.Containers[0].Args[2] }
	config, _ := first.Dependents(&appsv1.Deployment{})[1].(*corev1.ConfigMap)
	require.True(t, hash(first) == "--config-hash="+decision.HexDigest([]byte(config.Data[configKey]), 64), "not that of the ConfigMap")
	require.True(t, hash(first) == hash(newProxy("api.example.com:443", "api.example.com")), "the same hosts in another form are another revision")
	key, network := newProxy("api.example.com"), newProxy("api.example.com")
	key.PublicKeys, network.Network.ClusterNetworks = "other", []netip.Prefix{netip.MustParsePrefix("34.0.0.0/8")}
	for title, other := range map[string]*Proxy{"hosts": newProxy("www.example.com"), "key": key, "networks": network} {
		require.True(t, hash(other) != hash(first), "other %s are the same revision", title)
	}
	_, rules, err := sessionrunner.ParseConfig([]byte(config.Data[configKey]))
	require.True(t, err == nil && rules.Allow("default", "api.example.com", 443), "the proxy cannot use its configuration: %v, %v", rules, err)
}

func TestNetworkOfTheProxyAdmitsSessionsAndReachesThePortsOfHosts(t *testing.T) {
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{UID: "uid"}}
	objects := newProxy("api.example.com", "git.example.com:8443", "www.example.com:443").Dependents(deployment)
	np, _ := objects[0].(*networkingv1.NetworkPolicy)
	from := np.Spec.Ingress[0]
	isOfSessions := from.From[0].NamespaceSelector == nil && from.From[0].PodSelector.MatchExpressions[0].Key == "yardmaster.dev/session-uid"
	require.True(t, isOfSessions && len(from.From) == 1 && from.Ports[0].Port.IntVal == Port, "ingress %+v", from)
	var ports, blocks []string
	for _, port := range np.Spec.Egress[1].Ports {
		ports = append(ports, port.Port.String())
	}
	for _, peer := range np.Spec.Egress[1].To {
		blocks = append(blocks, peer.IPBlock.CIDR)
	}
	require.Equal(t, "443 8443, 0.0.0.0/0 2000::/3 10.9.0.0/16", strings.Join(ports, " ")+", "+strings.Join(blocks, " "))
	for _, object := range objects {
		owners := object.GetOwnerReferences()
		require.True(t, len(owners) == 1 && owners[0].UID == "uid" && IsOwn(object), "%T has the owners %v", object, owners)
	}
}

func TestProxyIsReadyWhenAllItsPodsHaveTheConfiguration(t *testing.T) {
	service := &corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.9"}}
	type status = appsv1.DeploymentStatus
	complete := status{ObservedGeneration: 3, Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: 2}
	check := func(title string, status status, service *corev1.Service, want metav1.ConditionStatus) {
		deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Generation: 3}, Status: status}
		got := StateOf(deployment, service)
		require.True(t, got.Status == want, "%s: %+v", title, got)
	}
	check("complete", complete, service, metav1.ConditionTrue)
	check("not observed", status{ObservedGeneration: 2, Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: 2}, service, metav1.ConditionFalse)
	check("an old Pod", status{ObservedGeneration: 3, Replicas: 3, UpdatedReplicas: 2, AvailableReplicas: 2}, service, metav1.ConditionFalse)
	check("a Pod is not updated", status{ObservedGeneration: 3, Replicas: 2, UpdatedReplicas: 1, AvailableReplicas: 2}, service, metav1.ConditionFalse)
	check("a Pod is not ready", status{ObservedGeneration: 3, Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: 1}, service, metav1.ConditionFalse)
	check("no address", complete, &corev1.Service{}, metav1.ConditionFalse)
	check("no Service", complete, nil, metav1.ConditionFalse)
	require.Equal(t, "[fd00::9]:3128", Address(&corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: "fd00::9"}}))
}
