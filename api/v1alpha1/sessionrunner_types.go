package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SessionRunner says what AgenticSessions of its namespace may run as. It is for those who
// look after the namespace: who may only create sessions chooses among what it allows.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=sr,categories=yardmaster
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.spec.image`
// +kubebuilder:printcolumn:name="Runtime",type=string,priority=1,JSONPath=`.spec.runtimeClassName`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type SessionRunner struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what sessions may run as.
	// +required
	Spec SessionRunnerSpec `json:"spec"`
}

// SessionRunnerList is a list of SessionRunners.
//
// +kubebuilder:object:root=true
type SessionRunnerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SessionRunner `json:"items"`
}

// SessionRunnerSpec is what sessions may run as. What it does not name is closed.
//
// All their containers run as another user than root, without capabilities, and with a root
// file system that is read-only. Nothing here changes that.
type SessionRunnerSpec struct {
	// image of the runner.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image"`

	// allowedImages that a session may ask for instead, in full: there are no patterns.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	AllowedImages []string `json:"allowedImages,omitempty"`

	// imagePullSecrets that the images are pulled with.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	ImagePullSecrets []SecretRef `json:"imagePullSecrets,omitempty"`

	// command of the runner. Left out: the image's.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Command []string `json:"command,omitempty"`

	// args of the runner. Left out: the image's.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Args []string `json:"args,omitempty"`

	// env of the runner. A session cannot set these variables.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:validation:XValidation:rule="self.all(e, !e.name.startsWith('AGENTIC_'))",message="names that begin with AGENTIC_ are reserved"
	Env []corev1.EnvVar `json:"env,omitempty"`

	// resources of the runner when its session does not say. Left out, or one of them:
	// requests of 100m CPU, 256Mi memory and 1Gi ephemeral storage, and limits of 1 CPU, 2Gi
	// and 4Gi.
	// +optional
	Resources SessionResources `json:"resources,omitempty"`

	// maxResources a session may ask for. Of what is not named here it may have no more
	// than the default limit.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	MaxResources corev1.ResourceList `json:"maxResources,omitempty"`

	// runtimeClassName of the Pods, such as that of a sandbox.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	RuntimeClassName *string `json:"runtimeClassName,omitempty"`

	// runAsUser of all containers. Left out: the images' users, who must be named by number.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	RunAsUser *int64 `json:"runAsUser,omitempty"`

	// runAsGroup of all containers.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	RunAsGroup *int64 `json:"runAsGroup,omitempty"`

	// sidecars that run beside the runner, and end when it does.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	Sidecars []SessionSidecar `json:"sidecars,omitempty"`

	// egress that Pods may reach, besides the cluster's DNS. Link-local addresses, where
	// clouds have their credentials, are reached only by a cidr that lies within them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Egress []SessionEgress `json:"egress,omitempty"`

	// ingressFrom are those who may reach an interactive session's port. Left out: nobody.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	IngressFrom []networkingv1.NetworkPolicyPeer `json:"ingressFrom,omitempty"`

	// port on which the runner of an interactive session listens.
	// +optional
	// +kubebuilder:default=8080
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`

	// storageClassName of persistent workspaces. Left out: the cluster's default. A session
	// may name this one only.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	StorageClassName *string `json:"storageClassName,omitempty"`

	// maxWorkspaceSize of a session.
	// +optional
	// +kubebuilder:default="10Gi"
	// +kubebuilder:validation:XValidation:rule="!isQuantity(string(self)) || quantity(string(self)).isGreaterThan(quantity('0'))",message="maxWorkspaceSize must be greater than zero"
	MaxWorkspaceSize *resource.Quantity `json:"maxWorkspaceSize,omitempty"`

	// allowedSecrets that a session may have, as environment or as files. Left out: all of
	// the namespace, but for the inputs of other sessions. Empty: none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	AllowedSecrets *[]string `json:"allowedSecrets,omitempty"`

	// activeDeadlineSeconds is the most that a session may run, all its runs together,
	// whatever its timeout is.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	ActiveDeadlineSeconds *int64 `json:"activeDeadlineSeconds,omitempty"`

	// activityLease gives the runner a token with which it may renew the Lease of its
	// session, and nothing else. Without it nobody can tell whether a session is idle. The
	// API server must be among egress.
	// +optional
	ActivityLease bool `json:"activityLease,omitempty"`
}

// SessionResources are requests and limits of a container.
type SessionResources struct {
	// requests of the container.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	Requests corev1.ResourceList `json:"requests,omitempty"`
	// limits of the container.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	Limits corev1.ResourceList `json:"limits,omitempty"`
}

// SessionSidecar is a container beside the runner. It starts before it, is restarted when
// it ends, and its exit decides nothing.
type SessionSidecar struct {
	// name of the container.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self != 'runner'",message="runner is the name of the runner's own container"
	Name string `json:"name"`

	// image of the container.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image"`

	// command of the container. Left out: the image's.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Command []string `json:"command,omitempty"`

	// args of the container. Left out: the image's.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Args []string `json:"args,omitempty"`

	// env of the container. It has none of the session's.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=128
	Env []corev1.EnvVar `json:"env,omitempty"`

	// resources of the container. Left out, or one of them: requests of 10m CPU, 32Mi memory
	// and 64Mi ephemeral storage, and limits of 500m, 256Mi and 1Gi.
	// +optional
	Resources SessionResources `json:"resources,omitempty"`

	// startupProbe that must succeed before the runner starts.
	// +optional
	StartupProbe *corev1.Probe `json:"startupProbe,omitempty"`

	// workspace mounts the session's workspace into the container, at /workspace.
	// +optional
	Workspace bool `json:"workspace,omitempty"`
}

// SessionEgress are addresses that may be reached.
type SessionEgress struct {
	// cidr of the addresses.
	// +required
	// +kubebuilder:validation:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="cidr must be a network, such as 10.0.0.0/8"
	CIDR string `json:"cidr"`

	// except are networks within cidr that may not be reached.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="self.all(e, isCIDR(e))",message="except must be networks"
	Except []string `json:"except,omitempty"`

	// ports there. At least one is given.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Ports []SessionPort `json:"ports"`
}

// SessionPort is a port that may be reached, or a range of them.
//
// +kubebuilder:validation:XValidation:rule="!has(self.endPort) || self.endPort >= self.port",message="endPort must not be less than port",fieldPath=".endPort"
type SessionPort struct {
	// port, or the first of a range.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`

	// endPort is the last of a range.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	EndPort *int32 `json:"endPort,omitempty"`

	// protocol of the port.
	// +optional
	// +kubebuilder:default=TCP
	// +kubebuilder:validation:Enum=TCP;UDP;SCTP
	Protocol corev1.Protocol `json:"protocol,omitempty"`
}
