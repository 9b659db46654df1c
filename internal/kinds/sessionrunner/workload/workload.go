// Package workload builds the objects of the egress proxy of a namespace. It is pure.
//
// The Deployment is the owner of the others, so that deleting it deletes all. Its template contains the hash of the
// configuration: a change of any SessionRunner's hosts is a rollout, and when it is complete, all Pods enforce the change.
package workload

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/sessionrunner"
)

const (
	// Name of all objects of the proxy.
	Name = "yardmaster-egress-proxy"
	// Label of all objects and Pods of the proxy.
	Label = v1alpha1.Prefix + "egress-proxy"
	// Port on which sessions connect to the proxy.
	Port = 3128

	labelValue = "true"
	// sessionLabel is on the Pods of all sessions: session.LabelSessionUID, which this package cannot import.
	sessionLabel = v1alpha1.Prefix + "session-uid"

	healthPort, metricsPort    = 8081, 9464
	proxyPortName              = "proxy"
	healthPortName             = "health"
	configVolume, configPath   = "config", "/etc/yardmaster/egress"
	configKey                  = "config.json"
	replicas                   = 2
	drainSeconds, graceSeconds = 300, 310
	// hashLength is the length of a complete SHA-256 hash.
	hashLength = 64
)

// Proxy is the input for the objects of the proxy of a namespace.
type Proxy struct {
	Namespace string
	// Image has the program yardmaster.
	Image string
	// PublicKeys verify the tokens of sessions, in PEM form.
	PublicKeys string
	Network    *sessionrunner.Network
	// Runners are the valid SessionRunners of the namespace that allow hosts.
	Runners []v1alpha1.SessionRunner
}

// Selector selects the Pods of the proxy.
func Selector() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{Label: labelValue}}
}

// IsOwn reports whether the operator created an object as a part of a proxy.
func IsOwn(object metav1.Object) bool {
	labels := object.GetLabels()
	return object.GetName() == Name && labels[v1alpha1.LabelManagedBy] == v1alpha1.ManagedByValue && labels[Label] == labelValue
}

func (p *Proxy) metadata() metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: Name, Namespace: p.Namespace, Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedByValue, Label: labelValue}}
}

func (p *Proxy) config() []byte {
	config := sessionrunner.Config{
		Namespace: p.Namespace, PublicKeys: p.PublicKeys, Runners: map[string][]string{},
		ClusterNetworks: p.Network.ClusterNetworks, ProxyNetworks: p.Network.ProxyNetworks,
	}
	for i := range p.Runners {
		config.Runners[p.Runners[i].Name] = sessionrunner.HostRules(&p.Runners[i])
	}
	raw, err := json.Marshal(config)
	if err != nil { // its types always marshal
		raw = fmt.Appendf(nil, "%q", err.Error())
	}
	return raw
}

// Deployment returns the Deployment, which owns the other objects.
func (p *Proxy) Deployment() *appsv1.Deployment {
	return &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "Deployment"},
		ObjectMeta: p.metadata(),
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(replicas)),
			Selector: Selector(),
			Strategy: appsv1.DeploymentStrategy{
				Type:          appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{MaxUnavailable: new(intstr.FromInt32(0)), MaxSurge: new(intstr.FromInt32(1))},
			},
			RevisionHistoryLimit: new(int32(1)),
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: p.metadata().Labels}, Spec: corev1.PodSpec{
				AutomountServiceAccountToken:  new(false),
				EnableServiceLinks:            new(false),
				TerminationGracePeriodSeconds: new(int64(graceSeconds)),
				SecurityContext: &corev1.PodSecurityContext{
					RunAsNonRoot: new(true), RunAsUser: new(int64(65532)), RunAsGroup: new(int64(65532)),
					SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
				},
				TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
					MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: Selector(),
					MatchLabelKeys: []string{appsv1.DefaultDeploymentUniqueLabelKey},
				}},
				Containers: []corev1.Container{p.container()},
				Volumes: []corev1.Volume{{Name: configVolume, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
					LocalObjectReference: corev1.LocalObjectReference{Name: Name},
				}}}},
			}},
		},
	}
}

func (p *Proxy) container() corev1.Container {
	probe := func(path string, period int32) *corev1.Probe {
		return &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromString(healthPortName)}},
			PeriodSeconds: period, TimeoutSeconds: 5,
		}
	}
	return corev1.Container{
		Name: "proxy", Image: p.Image, ImagePullPolicy: corev1.PullIfNotPresent,
		Args: []string{
			"egress-proxy", "--config=" + configPath + "/" + configKey, "--config-hash=" + decision.HexDigest(p.config(), hashLength),
			"--drain-timeout=" + strconv.Itoa(drainSeconds) + "s",
		},
		// Below the memory limit, so that Go collects garbage before the kernel kills the process.
		Env: []corev1.EnvVar{{Name: "GOMEMLIMIT", Value: "110MiB"}},
		Ports: []corev1.ContainerPort{
			{Name: proxyPortName, ContainerPort: Port}, {Name: healthPortName, ContainerPort: healthPort}, {Name: "metrics", ContainerPort: metricsPort},
		},
		LivenessProbe:  probe("/healthz", 20),
		ReadinessProbe: probe("/readyz", 2),
		// Sessions connect to the Pod until the Service no longer selects it.
		Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 2}}},
		Resources: corev1.ResourceRequirements{
			Requests: amounts("10m", "32Mi", "16Mi"), Limits: amounts("1", "128Mi", "64Mi"),
		},
		SecurityContext: &corev1.SecurityContext{
			RunAsNonRoot: new(true), AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
		VolumeMounts: []corev1.VolumeMount{{Name: configVolume, MountPath: configPath, ReadOnly: true}},
	}
}

func amounts(cpu, memory, storage string) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory), corev1.ResourceEphemeralStorage: resource.MustParse(storage),
	}
}

// Dependents returns the objects that the Deployment owns: the NetworkPolicy first.
func (p *Proxy) Dependents(deployment *appsv1.Deployment) []decision.Object {
	meta := p.metadata()
	meta.OwnerReferences = []metav1.OwnerReference{{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "Deployment", Name: Name, UID: deployment.UID}}
	return []decision.Object{
		&networkingv1.NetworkPolicy{
			TypeMeta: metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "NetworkPolicy"}, ObjectMeta: *meta.DeepCopy(), Spec: p.networkPolicy(),
		},
		&corev1.ConfigMap{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: *meta.DeepCopy(), Data: map[string]string{configKey: string(p.config())},
		},
		&corev1.Service{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: *meta.DeepCopy(),
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeClusterIP, Selector: Selector().MatchLabels,
				Ports: []corev1.ServicePort{{Name: proxyPortName, Port: Port, TargetPort: intstr.FromString(proxyPortName), Protocol: corev1.ProtocolTCP}},
			},
		},
	}
}

// networkPolicy admits the sessions of the namespace, and readers of metrics. The proxy reaches DNS, and the ports of all hosts
// at the addresses that it may connect to.
func (p *Proxy) networkPolicy() networkingv1.NetworkPolicySpec {
	sessions := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: sessionLabel, Operator: metav1.LabelSelectorOpExists}}}
	hosts := networkingv1.NetworkPolicyEgressRule{To: p.Network.ProxyPeers()}
	var ports []int32
	for i := range p.Runners {
		for _, text := range sessionrunner.HostRules(&p.Runners[i]) {
			if rule, err := sessionrunner.ParseHostRule(text); err == nil {
				ports = append(ports, int32(rule.Port))
			}
		}
	}
	slices.Sort(ports)
	for _, port := range slices.Compact(ports) {
		hosts.Ports = append(hosts.Ports, sessionrunner.PolicyPort(port, nil, corev1.ProtocolTCP))
	}
	return networkingv1.NetworkPolicySpec{
		PodSelector: *Selector(),
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
		Ingress: []networkingv1.NetworkPolicyIngressRule{{
			From:  []networkingv1.NetworkPolicyPeer{{PodSelector: sessions}},
			Ports: []networkingv1.NetworkPolicyPort{sessionrunner.PolicyPort(Port, nil, corev1.ProtocolTCP)},
		}, {
			From:  []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{}}},
			Ports: []networkingv1.NetworkPolicyPort{sessionrunner.PolicyPort(metricsPort, nil, corev1.ProtocolTCP)},
		}},
		Egress: []networkingv1.NetworkPolicyEgressRule{p.Network.AllowDNS(), hosts},
	}
}

// StateOf returns the condition EgressProxyReady, given the stored objects of the proxy.
func StateOf(deployment *appsv1.Deployment, service *corev1.Service) decision.State {
	status := &deployment.Status
	switch {
	case service == nil || Address(service) == "":
		return decision.False(v1alpha1.ReasonEgressProxyStarting, "Service "+Name+" has no address yet")
	case status.ObservedGeneration != deployment.Generation || status.UpdatedReplicas < replicas || status.Replicas > status.UpdatedReplicas || status.AvailableReplicas < replicas:
		return decision.False(v1alpha1.ReasonEgressProxyStarting, fmt.Sprintf("%d of %d Pods of Deployment %s are updated, and %d are available",
			status.UpdatedReplicas, replicas, Name, status.AvailableReplicas))
	}
	return decision.True(v1alpha1.ReasonEgressProxyReady, "")
}

// Address returns the address of the proxy's Service, because sessions have no DNS; empty without an address.
func Address(service *corev1.Service) string {
	if service == nil {
		return ""
	}
	address, err := netip.ParseAddr(service.Spec.ClusterIP) // a headless Service has None
	if err != nil {
		return ""
	}
	return netip.AddrPortFrom(address, Port).String()
}
