package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SessionRunner defines the image, limits and network access of AgenticSessions in its namespace.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=sr,categories=yardmaster
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.spec.image`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=='Ready')].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=='Ready')].reason`
// +kubebuilder:printcolumn:name="Runtime",type=string,priority=1,JSONPath=`.spec.template.spec.runtimeClassName`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type SessionRunner struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the environment of sessions, and its limits.
	// +required
	Spec SessionRunnerSpec `json:"spec"`

	// status is the observed state.
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	// +structType=atomic
	Status SessionRunnerStatus `json:"status,omitempty"`
}

// SessionRunnerStatus is whether sessions can use a SessionRunner, and what the operator provides for them.
type SessionRunnerStatus struct {
	ObservedStatus `json:",inline"`

	// egressProxyAddress of the proxy for hosts.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	EgressProxyAddress string `json:"egressProxyAddress,omitempty"`
}

// Reasons of the conditions of every kind, for a SessionRunner that is not ready, besides those of ConditionEgressProxyReady.
const (
	// ReasonConfigMapNotFound means that a ConfigMap of a volume, of the environment in template, of caBundle or of model.prices does not exist.
	ReasonConfigMapNotFound = "ConfigMapNotFound"
	// ReasonClaimNotFound means that a PersistentVolumeClaim of a volume, or of archive, does not exist.
	ReasonClaimNotFound = "ClaimNotFound"
)

// Reasons of ConditionEgressProxyReady.
const (
	ReasonEgressProxyReady = "EgressProxyReady"
	// ReasonEgressProxyStarting means that the proxy's Pods with the current hosts are not available yet.
	ReasonEgressProxyStarting = "EgressProxyStarting"
	// ReasonEgressProxyUnavailable means that the operator's configuration allows no proxy.
	ReasonEgressProxyUnavailable = "EgressProxyUnavailable"
	// ReasonEgressProxyRefused means that an object of the proxy exists and is not the operator's, or was refused.
	ReasonEgressProxyRefused = "EgressProxyRefused"
	// ReasonHostsInvalid means that a host of egress is invalid.
	ReasonHostsInvalid = "HostsInvalid"
)

// SessionRunnerList is a list of SessionRunners.
//
// +kubebuilder:object:root=true
type SessionRunnerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SessionRunner `json:"items"`
}

// SessionRunnerSpec is the environment that sessions run in, and its limits. Anything that it does
// not allow is denied.
//
// All containers run as a non-root user, without capabilities, and with a read-only root file
// system. No field changes that.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.activityLease) && self.activityLease && has(self.template) && has(self.template.spec) && has(self.template.spec.serviceAccountName))",message="activityLease needs a ServiceAccount for each session: remove serviceAccountName",fieldPath=".template.spec.serviceAccountName"
// +kubebuilder:validation:XValidation:rule="!has(self.limits) || !has(self.limits.inactivityTimeout) || (has(self.activityLease) && self.activityLease)",message="inactivityTimeout requires activityLease",fieldPath=".limits.inactivityTimeout"
type SessionRunnerSpec struct {
	// image of the container runner.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image"`

	// template is a Pod template with only these fields: labels, annotations, the container runner without its image,
	// sidecars as initContainers with restartPolicy Always, volumes (read-only), imagePullSecrets, runtimeClassName,
	// runAsUser, runAsGroup, serviceAccountName, hostUsers, nodeSelector, tolerations and priorityClassName.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.spec) || !has(self.spec.containers) || self.spec.containers.all(c, c.name == 'runner')",message="the only container is named runner; define sidecars as initContainers with restartPolicy: Always",fieldPath=".spec.containers"
	// +kubebuilder:validation:XValidation:rule="!has(self.spec) || !has(self.spec.containers) || self.spec.containers.all(c, !has(c.env) || c.env.all(e, !e.name.startsWith('AGENTIC_')))",message="names of variables that begin with AGENTIC_ are reserved",fieldPath=".spec.containers"
	// +kubebuilder:validation:XValidation:rule="!has(self.spec) || !has(self.spec.initContainers) || self.spec.initContainers.all(c, c.name != 'runner' && has(c.image) && has(c.restartPolicy) && c.restartPolicy == 'Always')",message="each of the initContainers is a sidecar: it has an image, restartPolicy: Always, and another name than runner",fieldPath=".spec.initContainers"
	// +kubebuilder:validation:XValidation:rule="!has(self.spec) || !has(self.spec.volumes) || self.spec.volumes.all(v, [has(v.configMap), has(v.secret), has(v.persistentVolumeClaim), has(v.projected)].filter(given, given).size() == 1)",message="set exactly one of configMap, secret, persistentVolumeClaim and projected for each volume",fieldPath=".spec.volumes"
	// +kubebuilder:validation:XValidation:rule="!has(self.spec) || !has(self.spec.volumes) || self.spec.volumes.all(v, !has(v.projected) || (has(v.projected.sources) && v.projected.sources.all(s, has(s.serviceAccountToken) && has(s.serviceAccountToken.audience))))",message="a projected volume has only serviceAccountToken sources, each with an audience",fieldPath=".spec.volumes"
	// +kubebuilder:validation:XValidation:rule="!has(self.spec) || !has(self.spec.securityContext) || ((!has(self.spec.securityContext.runAsUser) || (self.spec.securityContext.runAsUser >= 1 && self.spec.securityContext.runAsUser <= 2147483647)) && (!has(self.spec.securityContext.runAsGroup) || (self.spec.securityContext.runAsGroup >= 1 && self.spec.securityContext.runAsGroup <= 2147483647)))",message="runAsUser and runAsGroup must be from 1 to 2147483647",fieldPath=".spec.securityContext"
	// +kubebuilder:validation:XValidation:rule="self.?spec.?containers.orValue([]).size() <= 64 && self.?spec.?imagePullSecrets.orValue([]).size() <= 256 && self.?spec.?initContainers.orValue([]).size() <= 64 && self.?spec.?tolerations.orValue([]).size() <= 256 && self.?spec.?volumes.orValue([]).size() <= 256",message="a template may have at most 64 containers of each type, and 256 of each other list",fieldPath=".spec"
	Template *corev1.PodTemplateSpec `json:"template,omitempty"`

	// jobMetadata of the Jobs, such as the label of a Kueue queue.
	// +optional
	JobMetadata *ObjectMetadata `json:"jobMetadata,omitempty"`

	// caBundle is a ConfigMap with certificate authorities in PEM form. Its key defaults to ca.crt. Unset means those
	// of the images.
	// +optional
	CABundle *KeyReference `json:"caBundle,omitempty"`

	// allowed is what sessions may use.
	// +optional
	Allowed SessionAllowed `json:"allowed,omitzero"`

	// limits of the sessions.
	// +optional
	Limits SessionRunnerLimits `json:"limits,omitzero"`

	// network access of the Pods.
	// +optional
	Network SessionNetwork `json:"network,omitzero"`

	// workspace is how persistent workspaces are created.
	// +optional
	Workspace WorkspaceVolume `json:"workspace,omitzero"`

	// git clones and pushes in a container that alone has the credentials. The runner must support it, as
	// session-runner does. Unset means that the runner does both.
	// +optional
	Git *SessionGit `json:"git,omitempty"`

	// archive for transcripts. The runner must support it, as session-runner does. Unset means none.
	// +optional
	Archive *SessionArchive `json:"archive,omitempty"`

	// model is the provider of the agent's model, through a proxy that alone has the key, counts the cost, and holds
	// maxCostUSD. The runner must support it, as session-runner does. Unset means that the agent calls its model itself.
	// +optional
	Model *SessionModel `json:"model,omitempty"`

	// activityLease gives the runner a Lease for activity and cost, as inactivityTimeout and stopOnRunFinished require,
	// and access to the API server. Defaults to false.
	// +optional
	ActivityLease bool `json:"activityLease,omitempty"`
}

// SessionAllowed is what sessions may use. Anything else is denied.
type SessionAllowed struct {
	// images that sessions may set. Patterns are not supported.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	Images []string `json:"images,omitempty"`

	// secrets for secretMounts and, if keys are listed, envFrom.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	Secrets []SessionSource `json:"secrets,omitempty"`

	// configMaps for envFrom, with their keys.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:XValidation:rule="self.all(c, has(c.keys))",message="list the keys that sessions may use as variables"
	ConfigMaps []SessionSource `json:"configMaps,omitempty"`
}

// SessionSource is a Secret or a ConfigMap.
type SessionSource struct {
	LocalReference `json:",inline"`

	// keys that sessions may use. Unset means all of a Secret, only as files.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[-._a-zA-Z0-9]+$`
	Keys []string `json:"keys,omitempty"`
}

// SessionRunnerLimits limit the sessions of a SessionRunner, whatever their own limits are.
//
// +kubebuilder:validation:XValidation:rule="!has(self.maxSessions) || !has(self.maxSessionsPerUser) || self.maxSessionsPerUser <= self.maxSessions",message="maxSessionsPerUser must not be greater than maxSessions",fieldPath=".maxSessionsPerUser"
type SessionRunnerLimits struct {
	RunLimits `json:",inline"`

	// maxSessions is how many sessions may run at a time. Others wait. Unset means no limit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxSessions *int32 `json:"maxSessions,omitempty"`

	// maxSessionsPerUser is how many sessions of a user may run at a time. Unset means no limit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxSessionsPerUser *int32 `json:"maxSessionsPerUser,omitempty"`

	// maxResources that a session may set. Others are limited as in the template.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	MaxResources corev1.ResourceList `json:"maxResources,omitempty"`

	// maxWorkspaceSize of a session. Defaults to 10Gi.
	// +optional
	// +kubebuilder:default="10Gi"
	// +kubebuilder:validation:XValidation:rule="!isQuantity(string(self)) || quantity(string(self)).isGreaterThan(quantity('0'))",message="maxWorkspaceSize must be greater than zero"
	MaxWorkspaceSize *resource.Quantity `json:"maxWorkspaceSize,omitempty"`
}

// SessionNetwork is the network access of the Pods.
type SessionNetwork struct {
	// isolation Required starts sessions only if NetworkPolicies are enforced and no other one allows their Pods more,
	// Preferred in any case, with NetworkRestricted False. Defaults to Required.
	// +optional
	// +kubebuilder:default=Required
	// +kubebuilder:validation:Enum=Required;Preferred
	Isolation NetworkIsolation `json:"isolation,omitempty"`

	// egress rules of the Pods. DNS is allowed too, unless all have hosts. Addresses at which clouds serve credentials
	// need an ipBlock within them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Egress []SessionEgress `json:"egress,omitempty"`

	// ingressFrom are peers that may connect to interactive sessions, as in a NetworkPolicy.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	IngressFrom []networkingv1.NetworkPolicyPeer `json:"ingressFrom,omitempty"`

	// port of interactive sessions, 1024 to 65535. Defaults to 8080.
	// +optional
	// +kubebuilder:default=8080
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
}

// SessionContainer has the settings of a container that the operator adds to the Pods of sessions.
type SessionContainer struct {
	// image with session-runner. Defaults to the SessionRunner's.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image,omitempty"`

	// resources of the container. Defaults to those of a sidecar.
	// +optional
	Resources corev1.ResourceRequirements `json:"resources,omitzero"`
}

// SessionGit is the container that clones and pushes the repositories of a session. Its image also has git.
//
// +kubebuilder:validation:XValidation:rule="has(self.secretRef) == has(self.repositories)",message="secretRef and repositories, which get the credentials, require each other",fieldPath=".repositories"
// +kubebuilder:validation:XValidation:rule="!has(self.forge) || has(self.secretRef)",message="forge requires secretRef, with the token",fieldPath=".secretRef"
type SessionGit struct {
	SessionContainer `json:",inline"`

	// secretRef is a Secret with username and password, which may be a token, with ssh-privatekey and known_hosts, or
	// with githubAppID and githubAppPrivateKey.
	// +optional
	SecretRef *LocalReference `json:"secretRef,omitempty"`

	// repositories that get the credentials, such as github.com/acme/*, where * is a part of a name and ** any path.
	// Sessions cannot use others of the same hosts.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=512
	// +kubebuilder:validation:items:Pattern=`^([A-Za-z0-9_][A-Za-z0-9_.-]*@)?[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?(:[1-9][0-9]{0,4})?(/[A-Za-z0-9._~+*-]+)+$`
	Repositories []string `json:"repositories,omitempty"`

	// forge opens a pull request for each pushed repository.
	// +optional
	Forge *SessionForge `json:"forge,omitempty"`
}

// SessionForge is a service that hosts repositories.
type SessionForge struct {
	// type of the API: GitHub or GitLab.
	// +required
	// +kubebuilder:validation:Enum=GitHub;GitLab
	Type string `json:"type"`

	// apiURL of the forge. Defaults to that of the repository's host.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^https://[^/@]+(/[^@]*)?$`
	APIURL string `json:"apiURL,omitempty"`
}

// SessionArchive is where transcripts are kept, and the container that keeps them.
type SessionArchive struct {
	SessionContainer `json:",inline"`
	Archive          `json:",inline"`
}

// SessionModel is the API of the agent's model.
type SessionModel struct {
	// provider of the API: Anthropic, OpenAI or Google, or a server with the same API.
	// +required
	// +kubebuilder:validation:Enum=Anthropic;OpenAI;Google
	Provider string `json:"provider"`

	// secretRef is a Secret with the key ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY.
	// +required
	SecretRef LocalReference `json:"secretRef"`

	// baseURL of the API, without its version. Defaults to the provider's.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^https?://[^/@?#]+(/[^@?#]*)?$`
	BaseURL string `json:"baseURL,omitempty"`

	// prices is a ConfigMap with prices of models, in addition to or instead of the built-in prices. Its key defaults to
	// prices.yaml.
	// +optional
	Prices *KeyReference `json:"prices,omitempty"`
}

// NetworkIsolation is how sessions depend on the isolation of their network.
type NetworkIsolation string

// Values of NetworkIsolation.
const (
	NetworkIsolationRequired  NetworkIsolation = "Required"
	NetworkIsolationPreferred NetworkIsolation = "Preferred"
)

// EgressProfile is a set of addresses.
type EgressProfile string

// EgressPublicOnly are all public addresses.
const EgressPublicOnly EgressProfile = "PublicOnly"

// EgressHost is host or *.domain in lower case, with :port if it is not 443.
//
// +kubebuilder:validation:MaxLength=261
// +kubebuilder:validation:Pattern=`^(\*\.)?([a-z0-9_]([-a-z0-9_]{0,61}[a-z0-9_])?\.)+[a-z]([-a-z0-9]{0,61}[a-z0-9])?(:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?$`
type EgressHost string

// SessionEgress allows connections to a peer at ports, or to hosts.
//
// +kubebuilder:validation:XValidation:rule="[has(self.to), has(self.profile), has(self.hosts)].filter(given, given).size() == 1",message="set exactly one of to, profile and hosts"
// +kubebuilder:validation:XValidation:rule="has(self.hosts) != has(self.ports)",message="set ports, or hosts with their ports",fieldPath=".ports"
type SessionEgress struct {
	// to is a peer as in a NetworkPolicy: an ipBlock, or podSelector and namespaceSelector.
	// +optional
	// +kubebuilder:validation:XValidation:rule="has(self.ipBlock) != (has(self.podSelector) || has(self.namespaceSelector))",message="set ipBlock, or podSelector or namespaceSelector"
	// +kubebuilder:validation:XValidation:rule="!has(self.ipBlock) || (isCIDR(self.ipBlock.cidr) && (!has(self.ipBlock.except) || self.ipBlock.except.all(e, isCIDR(e))))",message="cidr and except must be networks, such as 10.0.0.0/8",fieldPath=".ipBlock"
	To *networkingv1.NetworkPolicyPeer `json:"to,omitempty"`

	// profile PublicOnly means public addresses outside the flag --cluster-cidrs.
	// +optional
	// +kubebuilder:validation:Enum=PublicOnly
	Profile EgressProfile `json:"profile,omitempty"`

	// hosts that Pods reach over TLS through a proxy, such as api.example.com, git.example.com:8443 or *.example.com,
	// at public addresses or those of the flag --egress-proxy-networks.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Hosts []EgressHost `json:"hosts,omitempty"`

	// ports as numbers. Required, except with hosts.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(p, has(p.port) && type(p.port) == int && p.port >= 1 && p.port <= 65535 && (!has(p.endPort) || (p.endPort >= p.port && p.endPort <= 65535)))",message="each port must be a number from 1 to 65535, and endPort not less than port"
	// +kubebuilder:validation:XValidation:rule="self.all(p, !has(p.protocol) || p.protocol in ['TCP', 'UDP', 'SCTP'])",message="protocol must be TCP, UDP or SCTP"
	Ports []networkingv1.NetworkPolicyPort `json:"ports,omitempty"`
}
