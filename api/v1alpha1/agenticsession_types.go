package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RunnerContainer is the name of the container whose exit decides a session's outcome.
const RunnerContainer = "runner"

// SessionEnvPrefix begins the names of the environment variables that tell a runner about
// its session.
const SessionEnvPrefix = "AGENTIC_"

// AgenticSession is one session of an AI agent, run as a Job: prompt in, result and cost
// out. What it may run as is its SessionRunner's business.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=as,categories=yardmaster
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 52 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name must begin with a letter and have at most 52 lower-case letters, digits and dashes"
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Run",type=integer,JSONPath=`.status.run`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=='Ready')].reason`
// +kubebuilder:printcolumn:name="Cost",type=number,JSONPath=`.status.totalCostUSD`
// +kubebuilder:printcolumn:name="Runner",type=string,priority=1,JSONPath=`.spec.runner`
// +kubebuilder:printcolumn:name="User",type=string,priority=1,JSONPath=`.spec.userContext.userId`
// +kubebuilder:printcolumn:name="Job",type=string,priority=1,JSONPath=`.status.job`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type AgenticSession struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the wanted session.
	// +required
	Spec AgenticSessionSpec `json:"spec"`

	// status is the observed state of the session.
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status AgenticSessionStatus `json:"status,omitempty"`
}

// AgenticSessionList is a list of AgenticSessions.
//
// +kubebuilder:object:root=true
type AgenticSessionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []AgenticSession `json:"items"`
}

// AgenticSessionSpec is the wanted session. Times are in seconds. A change reaches the
// next Job of the session, not one that is there; but operatingMode, timeouts of inactivity
// and of the start, and what is done when it has ended, hold at once.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.prompt) && has(self.initialPrompt))",message="give prompt or its alias initialPrompt, not both"
// +kubebuilder:validation:XValidation:rule="has(self.prompt) || has(self.initialPrompt) || (has(self.interactive) && self.interactive) || has(self.activeWorkflow)",message="prompt is required, unless the session is interactive or has an activeWorkflow",fieldPath=".prompt",reason="FieldValueRequired"
// +kubebuilder:validation:XValidation:rule="has(self.prompt) == has(oldSelf.prompt) && (!has(self.prompt) || self.prompt == oldSelf.prompt)",message="prompt is immutable",fieldPath=".prompt"
// +kubebuilder:validation:XValidation:rule="has(self.initialPrompt) == has(oldSelf.initialPrompt) && (!has(self.initialPrompt) || self.initialPrompt == oldSelf.initialPrompt)",message="initialPrompt is immutable",fieldPath=".initialPrompt"
// +kubebuilder:validation:XValidation:rule="has(self.userContext) == has(oldSelf.userContext) && (!has(self.userContext) || self.userContext == oldSelf.userContext)",message="userContext is immutable",fieldPath=".userContext"
// +kubebuilder:validation:XValidation:rule="has(self.workspace) == has(oldSelf.workspace) && (!has(self.workspace) || self.workspace == oldSelf.workspace)",message="workspace is immutable",fieldPath=".workspace"
// +kubebuilder:validation:XValidation:rule="has(self.continueFrom) == has(oldSelf.continueFrom) && (!has(self.continueFrom) || self.continueFrom == oldSelf.continueFrom)",message="continueFrom is immutable",fieldPath=".continueFrom"
// +kubebuilder:validation:XValidation:rule="!(has(self.continueFrom) && has(self.workspace))",message="with continueFrom the workspace is that of the other session: leave workspace out",fieldPath=".workspace"
// +kubebuilder:validation:XValidation:rule="!has(self.inactivityTimeout) || !has(self.timeout) || self.timeout == 0 || self.inactivityTimeout <= self.timeout",message="inactivityTimeout must not be greater than timeout",fieldPath=".inactivityTimeout"
type AgenticSessionSpec struct {
	// prompt for the agent, at most 64 KiB. It is immutable.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=65536
	// +kubebuilder:validation:XValidation:rule="size(bytes(self)) <= 65536",message="prompt must not have more than 65536 bytes"
	Prompt string `json:"prompt,omitempty"`

	// initialPrompt is an alias of prompt.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=65536
	// +kubebuilder:validation:XValidation:rule="size(bytes(self)) <= 65536",message="initialPrompt must not have more than 65536 bytes"
	InitialPrompt string `json:"initialPrompt,omitempty"`

	// displayName of the session, for people.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	DisplayName string `json:"displayName,omitempty"`

	// userContext is whose session it is. With the webhook on it is that of who creates it,
	// whatever is given. It is immutable.
	// +optional
	UserContext *UserContext `json:"userContext,omitempty"`

	// interactive sessions wait for people, who reach them through a Service. It is
	// immutable.
	// +optional
	// +kubebuilder:default=false
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="interactive is immutable"
	Interactive bool `json:"interactive"`

	// repos for the agent to work with.
	// +optional
	// +listType=map
	// +listMapKey=url
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(a, !has(a.name) || self.exists_one(b, has(b.name) && b.name == a.name))",message="names of repos must be unique"
	Repos []SessionRepo `json:"repos,omitempty"`

	// llmSettings are for the runner: the operator does not know what they mean.
	// +optional
	LLMSettings *LLMSettings `json:"llmSettings,omitempty"`

	// environmentVariables of the runner. Those of the operator and of the SessionRunner
	// cannot be set.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.matches('^[A-Za-z_][A-Za-z0-9_]{0,127}$'))",message="names of environment variables must be C identifiers of at most 128 characters"
	// +kubebuilder:validation:XValidation:rule="!self.exists(k, k.startsWith('AGENTIC_') || k.startsWith('YARDMASTER_') || k.startsWith('KUBERNETES_') || k.startsWith('LD_') || k in ['PATH', 'HOME', 'TMPDIR'])",message="names that begin with AGENTIC_, YARDMASTER_, KUBERNETES_ or LD_, and PATH, HOME and TMPDIR, are reserved"
	EnvironmentVariables map[string]EnvironmentValue `json:"environmentVariables,omitempty"`

	// envFrom takes environment variables from ConfigMaps and Secrets of the namespace.
	// Secrets are better had as files: secretMounts.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	EnvFrom []corev1.EnvFromSource `json:"envFrom,omitempty"`

	// secretMounts are Secrets of the namespace that the runner has as files.
	// +optional
	// +listType=map
	// +listMapKey=secretName
	// +kubebuilder:validation:MaxItems=16
	SecretMounts []SecretMount `json:"secretMounts,omitempty"`

	// timeout is how long the session may run, all its runs together, by the clocks of its
	// Jobs. 0 is without end, if the SessionRunner allows.
	// +optional
	// +kubebuilder:default=14400
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=604800
	Timeout *int32 `json:"timeout,omitempty"`

	// inactivityTimeout stops a session whose runner has shown no activity for so long. Left
	// out or 0: never.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2592000
	InactivityTimeout *int32 `json:"inactivityTimeout,omitempty"`

	// startupTimeout is how long a session waits for what it depends on, and for an image or
	// a configuration that is wrong, before it fails. 0 is for ever.
	// +optional
	// +kubebuilder:default=600
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=604800
	StartupTimeout *int32 `json:"startupTimeout,omitempty"`

	// ttlSecondsAfterFinished deletes the session so long after it has completed or failed.
	// Left out: never.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`

	// operatingMode Stopped ends the Job and keeps the workspace; Running goes on.
	// +optional
	// +kubebuilder:default=Running
	OperatingMode OperatingMode `json:"operatingMode,omitempty"`

	// runRequest counts the runs that were asked for: one more starts a session again that
	// has ended.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:XValidation:rule="self >= oldSelf && self <= oldSelf + 1",message="runRequest can only be increased, by one at a time"
	RunRequest int32 `json:"runRequest,omitempty"`

	// retry says when a run that failed is tried again.
	// +optional
	Retry *SessionRetry `json:"retry,omitempty"`

	// runner is the SessionRunner that the session runs as.
	// +optional
	// +kubebuilder:default=default
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Runner string `json:"runner,omitempty"`

	// image instead of the SessionRunner's, one of those it allows.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image,omitempty"`

	// resources of the runner, within what the SessionRunner allows.
	// +optional
	Resources *SessionResources `json:"resources,omitempty"`

	// workspace that the agent works in. It is immutable. Left out: a directory that goes
	// with each Pod.
	// +optional
	Workspace *SessionWorkspace `json:"workspace,omitempty"`

	// continueFrom is a session of the same user that has ended, and had a persistent
	// workspace: this one goes on in it. It is immutable.
	// +optional
	ContinueFrom *SessionReference `json:"continueFrom,omitempty"`

	// activeWorkflow that the agent follows, for the runner.
	// +optional
	ActiveWorkflow *ActiveWorkflow `json:"activeWorkflow,omitempty"`

	// mcpServers of the session, for the runner.
	// +optional
	MCPServers *MCPServers `json:"mcpServers,omitempty"`

	// stopOnRunFinished stops an interactive session when its runner says that it has
	// finished what it was at.
	// +optional
	StopOnRunFinished bool `json:"stopOnRunFinished,omitempty"`
}

// EnvironmentValue is the value of an environment variable.
//
// +kubebuilder:validation:MaxLength=32768
type EnvironmentValue string

// UserContext says whose session it is.
type UserContext struct {
	// userId is the name that the API server knows the user by.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	UserID string `json:"userId,omitempty"`

	// displayName of the user, for people.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	DisplayName string `json:"displayName,omitempty"`

	// groups of the user.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=1024
	Groups []string `json:"groups,omitempty"`
}

// SessionRepo is a git repository.
type SessionRepo struct {
	// url of the repository: https://, ssh:// or git@host:path.
	// +required
	URL GitURL `json:"url"`

	// branch to work on.
	// +optional
	// +kubebuilder:default=main
	Branch GitBranch `json:"branch,omitempty"`

	// name of its directory. Left out: the last part of the URL.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`
	Name string `json:"name,omitempty"`

	// autoPush has the runner push what the agent has changed.
	// +optional
	AutoPush bool `json:"autoPush,omitempty"`
}

// GitURL is where a git repository is.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=2048
// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9_][A-Za-z0-9_.-]*@[A-Za-z0-9][A-Za-z0-9.-]*:[^\\\\s]+$') || (isURL(self) && url(self).getScheme() in ['https', 'ssh'] && url(self).getHost().size() > 0)",message="the URL must be https://, ssh:// or git@host:path"
// +kubebuilder:validation:XValidation:rule="!self.matches('^https://[^/]*@') && !self.matches('^ssh://[^/@]*:[^/@]*@')",message="credentials must not stand in the URL: put them into a Secret"
type GitURL string

// GitBranch is the name of a branch.
//
// +kubebuilder:validation:MaxLength=244
// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_][A-Za-z0-9._/+@#-]*$`
type GitBranch string

// LLMSettings are for the runner.
type LLMSettings struct {
	// model to use.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Model string `json:"model,omitempty"`

	// temperature of the model.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2
	Temperature *Number `json:"temperature,omitempty"`

	// maxTokens the model may answer with.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000000
	MaxTokens *int32 `json:"maxTokens,omitempty"`
}

// SecretMount is a Secret that the runner has as files.
type SecretMount struct {
	// secretName of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	SecretName string `json:"secretName"`

	// mountPath of the directory with its files, below /secrets. Left out:
	// /secrets/<secretName>.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^/secrets/[A-Za-z0-9_-][A-Za-z0-9._-]*$`
	MountPath string `json:"mountPath,omitempty"`

	// optional says that the session may start without the Secret.
	// +optional
	Optional bool `json:"optional,omitempty"`
}

// SessionRetry says when a run that failed is tried again.
type SessionRetry struct {
	// limit is how often a run is tried again whose runner failed.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=5
	Limit int32 `json:"limit"`

	// onDisruption tries a run again whose Pod was evicted or preempted, or lost its node: at
	// most five times, which do not count for limit.
	// +optional
	OnDisruption bool `json:"onDisruption,omitempty"`
}

// SessionWorkspace is the directory that an agent works in.
type SessionWorkspace struct {
	// persistence of the workspace: Persistent outlives Pods, Ephemeral does not.
	// +optional
	// +kubebuilder:default=Persistent
	Persistence WorkspacePersistence `json:"persistence,omitempty"`

	// size of the workspace. Left out: 10Gi, or what the SessionRunner allows if that is
	// less.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!isQuantity(string(self)) || quantity(string(self)).isGreaterThan(quantity('0'))",message="size must be greater than zero"
	Size *resource.Quantity `json:"size,omitempty"`

	// storageClassName of the workspace. Left out: the SessionRunner's.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	StorageClassName *string `json:"storageClassName,omitempty"`

	// retain keeps a persistent workspace when the session is deleted.
	// +optional
	Retain bool `json:"retain,omitempty"`
}

// SessionReference names a session of the same namespace.
type SessionReference struct {
	// name of the session.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=52
	Name string `json:"name"`
}

// ActiveWorkflow is a git repository that says how the agent works.
type ActiveWorkflow struct {
	// gitUrl of the repository: https://, ssh:// or git@host:path.
	// +required
	GitURL GitURL `json:"gitUrl"`

	// branch to take.
	// +optional
	// +kubebuilder:default=main
	Branch GitBranch `json:"branch,omitempty"`

	// path in the repository.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('/') && !self.matches('(^|/)[.][.](/|$)')",message="path must stay within the repository"
	Path string `json:"path,omitempty"`
}

// MCPServers are the tools that an agent has.
type MCPServers struct {
	// custom servers by their names, as the runner understands them.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Custom map[string]apiextensionsv1.JSON `json:"custom,omitempty"`

	// disabled servers of those the runner brings.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	Disabled []string `json:"disabled,omitempty"`
}

// OperatingMode is whether a session is to run.
// +kubebuilder:validation:Enum=Running;Stopped
type OperatingMode string

// The operating modes.
const (
	ModeRunning OperatingMode = "Running"
	ModeStopped OperatingMode = "Stopped"
)

// WorkspacePersistence is whether a workspace outlives a Pod.
// +kubebuilder:validation:Enum=Persistent;Ephemeral
type WorkspacePersistence string

// The kinds of persistence.
const (
	WorkspacePersistent WorkspacePersistence = "Persistent"
	WorkspaceEphemeral  WorkspacePersistence = "Ephemeral"
)
