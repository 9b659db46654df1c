package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SessionRunner defines the image, the limits and the network access of AgenticSessions in its
// namespace. Administrators of the namespace create SessionRunners; session authors can only
// choose among what they allow.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=sr,categories=yardmaster
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.spec.image`
// +kubebuilder:printcolumn:name="Runtime",type=string,priority=1,JSONPath=`.spec.runtimeClassName`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type SessionRunner struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the environment that sessions run in, and its limits.
	// +required
	Spec SessionRunnerSpec `json:"spec"`

	// status is what the operator provides for the sessions.
	// +optional
	// +structType=atomic
	Status SessionRunnerStatus `json:"status,omitempty"`
}

// SessionRunnerStatus is what the operator provides for the sessions of a SessionRunner.
type SessionRunnerStatus struct {
	// conditions has EgressProxyReady if egress has hosts.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// egressProxyAddress is the address and port of the proxy through which sessions reach hosts.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	EgressProxyAddress string `json:"egressProxyAddress,omitempty"`
}

// ConditionEgressProxyReady of a SessionRunner is True if the egress proxy of its namespace runs with its hosts.
const ConditionEgressProxyReady = "EgressProxyReady"

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
// +kubebuilder:validation:XValidation:rule="!(has(self.serviceAccountName) && has(self.activityLease) && self.activityLease)",message="activityLease needs a ServiceAccount for each session: remove serviceAccountName",fieldPath=".serviceAccountName"
// +kubebuilder:validation:XValidation:rule="!has(self.maxSessions) || !has(self.maxSessionsPerUser) || self.maxSessionsPerUser <= self.maxSessions",message="maxSessionsPerUser must not be greater than maxSessions",fieldPath=".maxSessionsPerUser"
type SessionRunnerSpec struct {
	// image of the runner's container.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image"`

	// allowedImages are up to 64 further images that a session may set, as complete references.
	// Patterns are not supported. Default: none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	AllowedImages []string `json:"allowedImages,omitempty"`

	// imagePullSecrets are up to 16 Secrets with credentials for the images' registries.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	ImagePullSecrets []LocalReference `json:"imagePullSecrets,omitempty"`

	// command of the runner. Default: the image's.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Command []string `json:"command,omitempty"`

	// args of the runner. Default: the image's.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Args []string `json:"args,omitempty"`

	// env are up to 128 environment variables of the runner. A session cannot override them. Names
	// that begin with AGENTIC_ are not allowed.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:validation:XValidation:rule="self.all(e, !e.name.startsWith('AGENTIC_'))",message="names that begin with AGENTIC_ are reserved"
	Env []corev1.EnvVar `json:"env,omitempty"`

	// resources of the runner if its session sets none. Default for each: requests of 100m CPU,
	// 256Mi memory and 1Gi ephemeral storage; limits of 1 CPU, 2Gi and 4Gi.
	// +optional
	Resources SessionResources `json:"resources,omitempty"`

	// maxResources are the maximum limits that a session may set. For a resource that is not
	// listed, the maximum is the limit in resources.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	MaxResources corev1.ResourceList `json:"maxResources,omitempty"`

	// runtimeClassName of the Pods, for example of a sandbox. Default: the cluster's.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	RuntimeClassName *string `json:"runtimeClassName,omitempty"`

	// runAsUser is the numeric user of all containers. Default: the images' users, which must be
	// numeric.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	RunAsUser *int64 `json:"runAsUser,omitempty"`

	// runAsGroup is the numeric group of all containers. Default: the images' groups.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	RunAsGroup *int64 `json:"runAsGroup,omitempty"`

	// sidecars are up to 8 containers that start before the runner and end after it.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	Sidecars []SessionSidecar `json:"sidecars,omitempty"`

	// egress are up to 64 rules for peers that Pods may connect to, besides the cluster's DNS. They cannot use
	// DNS if all rules have hosts.
	// Addresses at which clouds serve credentials are allowed only by a cidr within them.
	// Default: none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Egress []SessionEgress `json:"egress,omitempty"`

	// networkIsolation is Required or Preferred. With Required, a session does not start while another
	// NetworkPolicy of the namespace allows its Pods more than egress and ingressFrom do, and its agent does
	// not start unless the network enforces NetworkPolicies. With Preferred it starts, and its condition
	// NetworkRestricted is False. Default: Required.
	// +optional
	// +kubebuilder:default=Required
	// +kubebuilder:validation:Enum=Required;Preferred
	NetworkIsolation NetworkIsolation `json:"networkIsolation,omitempty"`

	// ingressFrom are up to 16 peers that may connect to an interactive session's port, as in a
	// NetworkPolicy. Default: none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	IngressFrom []networkingv1.NetworkPolicyPeer `json:"ingressFrom,omitempty"`

	// port on which the runner of an interactive session listens, from 1024. Default: 8080.
	// +optional
	// +kubebuilder:default=8080
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`

	// storageClassName of persistent workspaces. A session cannot use another one. Default: the
	// cluster's default class.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	StorageClassName *string `json:"storageClassName,omitempty"`

	// maxWorkspaceSize is the maximum size of a session's workspace. Default: 10Gi.
	// +optional
	// +kubebuilder:default="10Gi"
	// +kubebuilder:validation:XValidation:rule="!isQuantity(string(self)) || quantity(string(self)).isGreaterThan(quantity('0'))",message="maxWorkspaceSize must be greater than zero"
	MaxWorkspaceSize *resource.Quantity `json:"maxWorkspaceSize,omitempty"`

	// workspace is how persistent workspaces are created.
	// +optional
	Workspace *SessionRunnerWorkspace `json:"workspace,omitempty"`

	// allowedSecrets are up to 256 Secrets that a session may use in secretMounts and, if keys are
	// listed, in envFrom. Default: none.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	AllowedSecrets []SessionSource `json:"allowedSecrets,omitempty"`

	// allowedConfigMaps are up to 256 ConfigMaps that a session may use in envFrom, with their keys.
	// Default: none.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:XValidation:rule="self.all(c, has(c.keys))",message="list the keys that sessions may use as variables"
	AllowedConfigMaps []SessionSource `json:"allowedConfigMaps,omitempty"`

	// serviceAccountName is the ServiceAccount of the Pods, for example one that a cloud accepts. It
	// must exist. Its token is not mounted: tokens lists what the runner gets. Not together with
	// activityLease. Default: one for each session, without permissions.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// tokens are up to 8 tokens of the Pod's ServiceAccount in files of the runner, which the kubelet
	// replaces before they expire. Default: none.
	// +optional
	// +listType=map
	// +listMapKey=path
	// +kubebuilder:validation:MaxItems=8
	Tokens []SessionToken `json:"tokens,omitempty"`

	// hostUsers false runs the Pods in a user namespace: a process that escapes its container has no
	// rights on the node. Nodes must support it. Default: the cluster's.
	// +optional
	HostUsers *bool `json:"hostUsers,omitempty"`

	// nodeSelector are up to 32 labels of the nodes that may run the Pods. Default: all nodes.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// tolerations are up to 32 tolerations of the Pods for taints of nodes. Default: none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// priorityClassName is the priority of the Pods. Default: the cluster's.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	PriorityClassName string `json:"priorityClassName,omitempty"`

	// podMetadata are further labels and annotations of the Pods. Default: none.
	// +optional
	PodMetadata *SessionPodMetadata `json:"podMetadata,omitempty"`

	// jobMetadata are further labels and annotations of the Jobs, for example the label
	// kueue.x-k8s.io/queue-name, with which Kueue admits each session. Default: none.
	// +optional
	JobMetadata *SessionJobMetadata `json:"jobMetadata,omitempty"`

	// imagePullPolicy of all containers: Always, IfNotPresent or Never. Default: that of Kubernetes, by
	// the tag of the image.
	// +optional
	// +kubebuilder:validation:Enum=Always;IfNotPresent;Never
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`

	// caBundle has the certificate authorities that all containers trust. Default: those of the images.
	// +optional
	CABundle *SessionCABundle `json:"caBundle,omitempty"`

	// volumes are up to 16 volumes that are mounted into the runner, read-only. Default: none.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Volumes []SessionVolume `json:"volumes,omitempty"`

	// activeDeadlineSeconds is the maximum number of seconds that a session may run, over all its
	// runs. It limits the session's timeout. Default: no limit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	ActiveDeadlineSeconds *int64 `json:"activeDeadlineSeconds,omitempty"`

	// maxCostUSD is how many US dollars a session may cost, over all its runs, from 0.000001 to
	// 1000000000, as reported by its runner. A session can only lower it. Default: no limit.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self >= 0.000001 && self <= 1000000000.0",message="maxCostUSD must be from 0.000001 to 1000000000"
	MaxCostUSD *Number `json:"maxCostUSD,omitempty"`

	// maxSessions is how many sessions may run at a time. Further ones wait, in the order of their
	// creation. A lower value stops no session. Default: no limit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxSessions *int32 `json:"maxSessions,omitempty"`

	// maxSessionsPerUser is how many sessions of one user may run at a time. Sessions without a user
	// count as those of one user. Default: no limit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxSessionsPerUser *int32 `json:"maxSessionsPerUser,omitempty"`

	// git clones the repositories of sessions and pushes their commits, in a container that alone has the credentials.
	// The runner must support it, as session-runner does. Default: the runner clones and pushes itself.
	// +optional
	Git *SessionGit `json:"git,omitempty"`

	// archive keeps the transcripts of attempts after their sessions are deleted, in a container that alone has access to
	// them. The runner must support it, as session-runner does. Default: none.
	// +optional
	Archive *SessionArchive `json:"archive,omitempty"`

	// activityLease gives the runner a Lease with which it reports activity and cost, and a token that can
	// only renew this Lease. inactivityTimeout and stopOnRunFinished of sessions require it.
	// Its Pods may connect to the API server. Default: false.
	// +optional
	ActivityLease bool `json:"activityLease,omitempty"`
}

// SessionGit is the container that clones and pushes the repositories of a session.
//
// +kubebuilder:validation:XValidation:rule="!has(self.secretName) || has(self.hosts)",message="secretName requires hosts, which get the credentials",fieldPath=".hosts"
// +kubebuilder:validation:XValidation:rule="!has(self.forge) || has(self.secretName)",message="forge requires secretName, with the token",fieldPath=".secretName"
type SessionGit struct {
	// image of the container, with session-runner and git. Default: the SessionRunner's image.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image,omitempty"`

	// secretName is the Secret with the credentials: username and password, where the password may be a token, or
	// ssh-privatekey and known_hosts. Only this container mounts it. Default: none.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	SecretName string `json:"secretName,omitempty"`

	// hosts are up to 16 hosts that get the credentials, such as github.com or git.example.com:8443. Repositories of other
	// hosts are cloned without credentials.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=259
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?(:[0-9]{1,5})?$`
	Hosts []string `json:"hosts,omitempty"`

	// forge opens a pull request for each pushed repository. Default: none.
	// +optional
	Forge *SessionForge `json:"forge,omitempty"`

	// resources of the container. Default for each: those of a sidecar.
	// +optional
	Resources SessionResources `json:"resources,omitempty"`
}

// SessionForge is a service that hosts repositories.
type SessionForge struct {
	// type of the API: GitHub or GitLab.
	// +required
	// +kubebuilder:validation:Enum=GitHub;GitLab
	Type string `json:"type"`

	// apiURL is the URL of the API. Default: that of the repository's host.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^https://[^/@]+(/[^@]*)?$`
	APIURL string `json:"apiURL,omitempty"`
}

// SessionArchive is where transcripts are kept.
//
// +kubebuilder:validation:XValidation:rule="has(self.claimName) != has(self.s3)",message="set exactly one of claimName and s3"
type SessionArchive struct {
	// claimName is the PersistentVolumeClaim with the transcripts. Its access mode must allow all Pods that use it at a time.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ClaimName string `json:"claimName,omitempty"`

	// s3 is the bucket with the transcripts.
	// +optional
	S3 *ArchiveS3 `json:"s3,omitempty"`

	// image of the container, with session-runner. Default: the SessionRunner's image.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image,omitempty"`

	// resources of the container. Default for each: those of a sidecar.
	// +optional
	Resources SessionResources `json:"resources,omitempty"`
}

// ArchiveS3 is a bucket of an object store with the API of Amazon S3.
type ArchiveS3 struct {
	// endpoint is the URL of the store, such as https://s3.eu-central-1.amazonaws.com. Network policies, such as egress of
	// a SessionRunner, must allow it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^https?://[^/@?#\s]+/?$`
	Endpoint string `json:"endpoint"`

	// bucket that exists.
	// +required
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9][-a-z0-9.]*[a-z0-9]$`
	Bucket string `json:"bucket"`

	// prefix of the names of objects, such as agents/transcripts. Default: none.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*/?$`
	Prefix string `json:"prefix,omitempty"`

	// region of the bucket. Default: us-east-1.
	// +optional
	// +kubebuilder:default=us-east-1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9-]+$`
	Region string `json:"region,omitempty"`

	// secretName is the Secret with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and maybe AWS_SESSION_TOKEN. Only the
	// container that archives mounts it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	SecretName string `json:"secretName"`
}

// SessionRunnerWorkspace is how persistent workspaces are created.
type SessionRunnerWorkspace struct {
	// accessMode of new claims: ReadWriteOnce, ReadWriteOncePod or ReadWriteMany. The storage must
	// support it. In all of them, the operator lets only one Pod of a session use a workspace at a time;
	// ReadWriteOncePod also excludes other Pods. Default: ReadWriteOnce.
	// +optional
	// +kubebuilder:default=ReadWriteOnce
	// +kubebuilder:validation:Enum=ReadWriteOnce;ReadWriteOncePod;ReadWriteMany
	AccessMode corev1.PersistentVolumeAccessMode `json:"accessMode,omitempty"`
}

// NetworkIsolation is how sessions depend on the isolation of their network.
type NetworkIsolation string

// Values of NetworkIsolation.
const (
	NetworkIsolationRequired  NetworkIsolation = "Required"
	NetworkIsolationPreferred NetworkIsolation = "Preferred"
)

// SessionPodMetadata are labels and annotations of Pods.
type SessionPodMetadata struct {
	// labels are up to 32 labels. Those of the operator and of Kubernetes' Jobs are reserved.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Labels map[string]string `json:"labels,omitempty"`
	// annotations are up to 32 annotations. Those of the operator, and those that change the isolation
	// of containers, are reserved.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Annotations map[string]string `json:"annotations,omitempty"`
}

// SessionJobMetadata are labels and annotations of Jobs.
type SessionJobMetadata struct {
	// labels are up to 32 labels. Those of the operator and of Kubernetes' Jobs are reserved.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Labels map[string]string `json:"labels,omitempty"`
	// annotations are up to 32 annotations. Those of the operator and of Kubernetes' Jobs are reserved.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Annotations map[string]string `json:"annotations,omitempty"`
}

// SessionCABundle is a file with certificate authorities in PEM form, in a ConfigMap.
type SessionCABundle struct {
	// configMap is the name of the ConfigMap.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ConfigMap string `json:"configMap"`
	// key of the ConfigMap. Default: ca.crt.
	// +optional
	// +kubebuilder:default="ca.crt"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[-._a-zA-Z0-9]+$`
	Key string `json:"key,omitempty"`
}

// SessionVolume is a volume that is mounted read-only.
//
// +kubebuilder:validation:XValidation:rule="[has(self.configMap), has(self.secret), has(self.persistentVolumeClaim)].filter(given, given).size() == 1",message="set exactly one of configMap, secret and persistentVolumeClaim"
type SessionVolume struct {
	// name of the volume.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`
	// mountPath is the directory in the runner. It cannot contain, or be in, a directory of the operator.
	// +required
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=1024
	MountPath string `json:"mountPath"`
	// configMap is the name of a ConfigMap.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ConfigMap string `json:"configMap,omitempty"`
	// secret is the name of a Secret.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Secret string `json:"secret,omitempty"`
	// persistentVolumeClaim is the name of a PersistentVolumeClaim.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	PersistentVolumeClaim string `json:"persistentVolumeClaim,omitempty"`
}

// SessionSource is a Secret or a ConfigMap that sessions may use.
type SessionSource struct {
	// name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Name string `json:"name"`

	// keys are up to 64 keys that sessions may use. Without keys, a Secret can be mounted as a whole,
	// and not be used in envFrom. Default: all, only as files.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[-._a-zA-Z0-9]+$`
	Keys []string `json:"keys,omitempty"`
}

// SessionToken is a token of the Pod's ServiceAccount.
type SessionToken struct {
	// audience that accepts the token, for example sts.amazonaws.com. A token for the API server has
	// the permissions of the ServiceAccount: the API server accepts only its own audiences.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Audience string `json:"audience"`

	// expirationSeconds is the lifetime of the token, from 600 to 86400. Default: 3600.
	// +optional
	// +kubebuilder:default=3600
	// +kubebuilder:validation:Minimum=600
	// +kubebuilder:validation:Maximum=86400
	ExpirationSeconds int64 `json:"expirationSeconds,omitempty"`

	// path is the name of the file in the directory /var/run/secrets/tokens.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_-][A-Za-z0-9._-]*$`
	Path string `json:"path"`
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

// SessionSidecar is a container that runs next to the runner. It starts before the runner and is
// restarted when it ends. Its exit code does not affect the session.
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

	// command of the container. Default: the image's.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Command []string `json:"command,omitempty"`

	// args of the container. Default: the image's.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Args []string `json:"args,omitempty"`

	// env are up to 128 environment variables of the container. It does not get the session's
	// variables.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=128
	Env []corev1.EnvVar `json:"env,omitempty"`

	// resources of the container. Default for each: requests of 10m CPU, 32Mi memory and 64Mi
	// ephemeral storage; limits of 500m CPU, 256Mi and 1Gi.
	// +optional
	Resources SessionResources `json:"resources,omitempty"`

	// startupProbe that must succeed before the runner starts.
	// +optional
	StartupProbe *corev1.Probe `json:"startupProbe,omitempty"`

	// workspace mounts the session's workspace into the container at /workspace. Default: false.
	// +optional
	Workspace bool `json:"workspace,omitempty"`
}

// EgressProfile is a set of addresses.
type EgressProfile string

// EgressPublicOnly are all public addresses.
const EgressPublicOnly EgressProfile = "PublicOnly"

// EgressHost is a host, as host or host:port, or all subdomains of a domain, as *.domain or *.domain:port, in lower
// case. Default port: 443. Addresses are not allowed.
//
// +kubebuilder:validation:MaxLength=261
// +kubebuilder:validation:Pattern=`^(\*\.)?([a-z0-9_]([-a-z0-9_]{0,61}[a-z0-9_])?\.)+[a-z]([-a-z0-9]{0,61}[a-z0-9])?(:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?$`
type EgressHost string

// SessionEgress is a rule that allows connections to addresses and ports, or to hosts.
//
// +kubebuilder:validation:XValidation:rule="[has(self.cidr), has(self.profile), has(self.to), has(self.hosts)].filter(given, given).size() == 1",message="set exactly one of cidr, profile, to and hosts"
// +kubebuilder:validation:XValidation:rule="has(self.hosts) != has(self.ports)",message="set ports, or hosts with their ports",fieldPath=".ports"
// +kubebuilder:validation:XValidation:rule="has(self.cidr) || !has(self.except)",message="except requires cidr",fieldPath=".except"
type SessionEgress struct {
	// cidr of the addresses, for example 10.0.0.0/8.
	// +optional
	// +kubebuilder:validation:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="cidr must be a network, such as 10.0.0.0/8"
	CIDR string `json:"cidr,omitempty"`

	// profile is PublicOnly: all public addresses, without private, shared, link-local, metadata and
	// other special ones, and without the networks of the operator's flag --cluster-cidrs.
	// +optional
	// +kubebuilder:validation:Enum=PublicOnly
	Profile EgressProfile `json:"profile,omitempty"`

	// to are the Pods of a NetworkPolicyPeer, by podSelector and namespaceSelector.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.ipBlock) && (has(self.podSelector) || has(self.namespaceSelector))",message="set podSelector or namespaceSelector; use cidr for addresses"
	To *networkingv1.NetworkPolicyPeer `json:"to,omitempty"`

	// except are up to 16 networks within cidr that stay denied.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="self.all(e, isCIDR(e))",message="except must be networks"
	Except []string `json:"except,omitempty"`

	// hosts are up to 64 hosts, such as api.example.com, git.example.com:8443 or *.example.com, which the
	// Pods reach over TLS through a proxy in their namespace. The proxy resolves names, and connects only to
	// public addresses and to the networks of the operator's flag --egress-proxy-networks. If all rules have
	// hosts, the Pods cannot use DNS. A SessionRunner has at most 256 hosts.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Hosts []EgressHost `json:"hosts,omitempty"`

	// ports that are allowed, from 1 to 16. Required, except with hosts.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Ports []SessionPort `json:"ports,omitempty"`
}

// SessionPort is an allowed port or range of ports.
//
// +kubebuilder:validation:XValidation:rule="!has(self.endPort) || self.endPort >= self.port",message="endPort must not be less than port",fieldPath=".endPort"
type SessionPort struct {
	// port, or the first of a range.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`

	// endPort is the last port of a range. Default: only port is allowed.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	EndPort *int32 `json:"endPort,omitempty"`

	// protocol of the port: TCP, UDP or SCTP. Default: TCP.
	// +optional
	// +kubebuilder:default=TCP
	// +kubebuilder:validation:Enum=TCP;UDP;SCTP
	Protocol corev1.Protocol `json:"protocol,omitempty"`
}
