package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RunnerContainer is the name of the container whose exit code determines a session's outcome.
const RunnerContainer = "runner"

// SessionEnvPrefix is the prefix of the environment variables that describe the session to its
// runner.
const SessionEnvPrefix = "AGENTIC_"

// VerbAdminister is the verb on agenticsessions that lets a user change the spec of sessions of other
// users.
const VerbAdminister = "administer"

// AgenticSession is one session of an AI agent. It runs as a Job that takes a prompt and reports a
// result and its cost. A SessionRunner in the same namespace defines the image and the limits.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=as,categories=yardmaster
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 52 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name must begin with a letter and have at most 52 lower-case letters, digits and dashes"
// +kubebuilder:selectablefield:JSONPath=`.status.phase`
// +kubebuilder:selectablefield:JSONPath=`.spec.runner`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Run",type=integer,JSONPath=`.status.run`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=='Ready')].reason`
// +kubebuilder:printcolumn:name="Cost",type=number,JSONPath=`.status.totalCostUSD`
// +kubebuilder:printcolumn:name="Runner",type=string,priority=1,JSONPath=`.spec.runner`
// +kubebuilder:printcolumn:name="User",type=string,priority=1,JSONPath=`.spec.userContext.userId`
// +kubebuilder:printcolumn:name="Job",type=string,priority=1,JSONPath=`.status.attempt.jobName`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type AgenticSession struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired session.
	// +required
	Spec AgenticSessionSpec `json:"spec"`

	// status is the observed state of the session.
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	// +structType=atomic
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

// AgenticSessionSpec is the desired session. All times are in seconds. A change applies to the
// session's next Job, except that suspend, timeout, maxCostUSD, inactivityTimeout,
// startupTimeout, stopOnRunFinished, retry and ttlSecondsAfterFinished apply immediately.
//
// +kubebuilder:validation:XValidation:rule="has(self.prompt) || (has(self.interactive) && self.interactive) || has(self.activeWorkflow)",message="prompt is required, unless the session is interactive or has an activeWorkflow",fieldPath=".prompt",reason="FieldValueRequired"
// +kubebuilder:validation:XValidation:rule="has(self.prompt) == has(oldSelf.prompt) && (!has(self.prompt) || self.prompt == oldSelf.prompt)",message="prompt is immutable",fieldPath=".prompt"
// +kubebuilder:validation:XValidation:rule="has(self.userContext) == has(oldSelf.userContext) && (!has(self.userContext) || self.userContext == oldSelf.userContext)",message="userContext is immutable",fieldPath=".userContext"
// +kubebuilder:validation:XValidation:rule="has(self.workspace) == has(oldSelf.workspace) && (!has(self.workspace) || (has(self.workspace.persistence) == has(oldSelf.workspace.persistence) && (!has(self.workspace.persistence) || self.workspace.persistence == oldSelf.workspace.persistence) && has(self.workspace.size) == has(oldSelf.workspace.size) && (!has(self.workspace.size) || self.workspace.size == oldSelf.workspace.size) && has(self.workspace.storageClassName) == has(oldSelf.workspace.storageClassName) && (!has(self.workspace.storageClassName) || self.workspace.storageClassName == oldSelf.workspace.storageClassName) && has(self.workspace.retain) == has(oldSelf.workspace.retain) && (!has(self.workspace.retain) || self.workspace.retain == oldSelf.workspace.retain)))",message="workspace is immutable, except onLost",fieldPath=".workspace"
// +kubebuilder:validation:XValidation:rule="has(self.continueFrom) == has(oldSelf.continueFrom) && (!has(self.continueFrom) || self.continueFrom == oldSelf.continueFrom)",message="continueFrom is immutable",fieldPath=".continueFrom"
// +kubebuilder:validation:XValidation:rule="!(has(self.continueFrom) && has(self.workspace))",message="with continueFrom the session uses the other session's workspace: do not set workspace",fieldPath=".workspace"
// +kubebuilder:validation:XValidation:rule="!has(self.inactivityTimeout) || !has(self.timeout) || self.timeout == 0 || self.inactivityTimeout <= self.timeout",message="inactivityTimeout must not be greater than timeout",fieldPath=".inactivityTimeout"
type AgenticSessionSpec struct {
	// prompt for the agent, at most 64 KiB. It is required unless the session is interactive or
	// has an activeWorkflow. Immutable.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=65536
	// +kubebuilder:validation:XValidation:rule="size(bytes(self)) <= 65536",message="prompt must not have more than 65536 bytes"
	Prompt string `json:"prompt,omitempty"`

	// displayName is a name of the session for people, at most 256 characters.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	DisplayName string `json:"displayName,omitempty"`

	// userContext is the user that the session belongs to. If the operator's webhook is enabled,
	// it sets userId and groups to the user who creates the session, and only this user and those
	// with the verb administer on agenticsessions can change the spec. Immutable.
	// +optional
	UserContext *UserContext `json:"userContext,omitempty"`

	// interactive sessions run until they are stopped, and serve requests through a Service with
	// the session's name. Default: false. Immutable.
	// +optional
	// +kubebuilder:default=false
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="interactive is immutable"
	Interactive bool `json:"interactive"`

	// repos are up to 16 git repositories for the runner to clone. URLs and names must be unique.
	// +optional
	// +listType=map
	// +listMapKey=url
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(a, !has(a.name) || self.exists_one(b, has(b.name) && b.name == a.name))",message="names of repos must be unique"
	Repos []SessionRepo `json:"repos,omitempty"`

	// llmSettings are passed to the runner. The operator does not interpret them.
	// +optional
	LLMSettings *LLMSettings `json:"llmSettings,omitempty"`

	// environmentVariables are up to 64 variables of the runner, 256 KiB in total. Variables that
	// the SessionRunner sets, PATH, HOME, TMPDIR, and names that begin with AGENTIC_,
	// YARDMASTER_, KUBERNETES_ or LD_ are not allowed.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.matches('^[A-Za-z_][A-Za-z0-9_]{0,127}$'))",message="names of environment variables must be C identifiers of at most 128 characters"
	// +kubebuilder:validation:XValidation:rule="!self.exists(k, k.startsWith('AGENTIC_') || k.startsWith('YARDMASTER_') || k.startsWith('KUBERNETES_') || k.startsWith('LD_') || k in ['PATH', 'HOME', 'TMPDIR'])",message="names that begin with AGENTIC_, YARDMASTER_, KUBERNETES_ or LD_, and PATH, HOME and TMPDIR, are reserved"
	EnvironmentVariables map[string]EnvironmentValue `json:"environmentVariables,omitempty"`

	// envFrom adds environment variables from up to 16 ConfigMaps and Secrets, one for each key that
	// allowed.configMaps and allowed.secrets of the SessionRunner list. Names that are not allowed in
	// environmentVariables are not allowed here either. Prefer secretMounts for Secrets: files are not
	// inherited by child processes.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	EnvFrom []corev1.EnvFromSource `json:"envFrom,omitempty"`

	// secretMounts are up to 16 Secrets to mount as files into the runner, with the keys that
	// allowed.secrets of the SessionRunner lists.
	// +optional
	// +listType=map
	// +listMapKey=secretName
	// +kubebuilder:validation:MaxItems=16
	SecretMounts []SecretMount `json:"secretMounts,omitempty"`

	// timeout is how many seconds the session may run, over all its runs, measured from the
	// start of each runner. 0 means no limit, except limits.timeout of the
	// SessionRunner. Default: 14400 (4 hours). Maximum: 604800 (7 days).
	// +optional
	// +kubebuilder:default=14400
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=604800
	Timeout *int32 `json:"timeout,omitempty"`

	// maxCostUSD is how many US dollars the session may cost, over all its runs, from 0.000001 to
	// 1000000000. The session is stopped when its runner reports that much, and is not run again until
	// the limit is increased. A cost that the runner does not report is not limited. The lower one of
	// this limit and that of the SessionRunner applies. Default: that of the SessionRunner.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self >= 0.000001 && self <= 1000000000.0",message="maxCostUSD must be from 0.000001 to 1000000000"
	MaxCostUSD *Number `json:"maxCostUSD,omitempty"`

	// inactivityTimeout is after how many seconds without activity of the runner the session is
	// stopped. It requires activityLease in the SessionRunner. Default: 0, which means never.
	// Maximum: 2592000 (30 days), and not more than timeout.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2592000
	InactivityTimeout *int32 `json:"inactivityTimeout,omitempty"`

	// startupTimeout is after how many seconds the session fails if an object that it needs is
	// missing, or its image or configuration is wrong. 0 means never. Default: 600.
	// Maximum: 604800 (7 days).
	// +optional
	// +kubebuilder:default=600
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=604800
	StartupTimeout *int32 `json:"startupTimeout,omitempty"`

	// ttlSecondsAfterFinished is how many seconds after it completed or failed the session is
	// deleted. Default: never.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`

	// suspend stops the session: its Job is deleted, its persistent workspace is kept. False resumes a session that was
	// stopped this way. Defaults to false.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// rerun requests another run.
	// +optional
	Rerun *SessionRerun `json:"rerun,omitempty"`

	// retry defines which failed runs are retried. Default: none.
	// +optional
	Retry *SessionRetry `json:"retry,omitempty"`

	// runner is the name of the SessionRunner that defines the image and the limits.
	// Default: default.
	// +optional
	// +kubebuilder:default=default
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Runner string `json:"runner,omitempty"`

	// image of the runner. It must be the SessionRunner's image or one of its allowed.images.
	// Default: the SessionRunner's image.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image,omitempty"`

	// resources of the runner's container, within limits.maxResources of the SessionRunner.
	// Defaults to those of the runner in the SessionRunner's template.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`

	// workspace is the directory that the agent works in. Default: an empty directory for each
	// Pod. Immutable, except onLost.
	// +optional
	Workspace *SessionWorkspace `json:"workspace,omitempty"`

	// continueFrom names a session to continue: this session uses its workspace. That session must
	// belong to the same user, have completed or failed, and have a persistent workspace.
	// Immutable.
	// +optional
	ContinueFrom *SessionReference `json:"continueFrom,omitempty"`

	// activeWorkflow is a git repository with instructions for the agent. It is passed to the
	// runner.
	// +optional
	ActiveWorkflow *ActiveWorkflow `json:"activeWorkflow,omitempty"`

	// mcpServers are the tool servers of the agent, at most 64 KiB as JSON. They are passed to
	// the runner.
	// +optional
	MCPServers *MCPServers `json:"mcpServers,omitempty"`

	// stopOnRunFinished stops an interactive session when its runner reports that its run is
	// finished. It requires activityLease in the SessionRunner. Default: false.
	// +optional
	StopOnRunFinished bool `json:"stopOnRunFinished,omitempty"`
}

// EnvironmentValue is the value of an environment variable.
//
// +kubebuilder:validation:MaxLength=32768
type EnvironmentValue string

// UserContext is the user that a session belongs to.
type UserContext struct {
	// userId is the user's name in the API server's authentication.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	UserID string `json:"userId,omitempty"`

	// displayName is a name of the user for people, at most 256 characters.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	DisplayName string `json:"displayName,omitempty"`

	// groups of the user in the API server's authentication.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=1024
	Groups []string `json:"groups,omitempty"`
}

// SessionRepo is a git repository.
type SessionRepo struct {
	// url of the repository, as https://, ssh:// or git@host:path, without credentials.
	// +required
	URL GitURL `json:"url"`

	// branch to check out. Default: main.
	// +optional
	// +kubebuilder:default=main
	Branch GitBranch `json:"branch,omitempty"`

	// name of the repository's directory in the workspace. Default: the last part of the URL.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`
	Name string `json:"name,omitempty"`

	// autoPush requests that the runner pushes the agent's changes. Default: false.
	// +optional
	AutoPush bool `json:"autoPush,omitempty"`

	// depth is the number of commits of each branch to clone. Default: all.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	Depth *int32 `json:"depth,omitempty"`
}

// GitURL is the URL of a git repository.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=2048
// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9_][A-Za-z0-9_.-]*@[A-Za-z0-9][A-Za-z0-9.-]*:[^\\\\s]+$') || (isURL(self) && url(self).getScheme() in ['https', 'ssh'] && url(self).getHost().size() > 0)",message="the URL must be https://, ssh:// or git@host:path"
// +kubebuilder:validation:XValidation:rule="!self.matches('^https://[^/]*@') && !self.matches('^ssh://[^/@]*:[^/@]*@')",message="the URL must not contain credentials: put them into a Secret, and mount it with secretMounts"
type GitURL string

// GitBranch is the name of a git branch.
//
// +kubebuilder:validation:MaxLength=244
// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_][A-Za-z0-9._/+@#-]*$`
type GitBranch string

// LLMSettings are settings of the language model, for the runner.
type LLMSettings struct {
	// model is the name of the model.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Model string `json:"model,omitempty"`

	// temperature of the model, from 0 to 2.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2
	Temperature *Number `json:"temperature,omitempty"`

	// maxTokens is the maximum number of tokens in an answer of the model.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000000
	MaxTokens *int32 `json:"maxTokens,omitempty"`
}

// SecretMount is a Secret that is mounted as files into the runner.
type SecretMount struct {
	// secretName is the name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	SecretName string `json:"secretName"`

	// mountPath is a directory directly below /secrets. Default: /secrets/<secretName>.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^/secrets/[A-Za-z0-9_-][A-Za-z0-9._-]*$`
	MountPath string `json:"mountPath,omitempty"`

	// optional lets the session start without the Secret. Default: false.
	// +optional
	Optional bool `json:"optional,omitempty"`
}

// SessionRerun requests another run of a session.
type SessionRerun struct {
	// id of this request, any text. The next run starts when the run has ended and the id differs from status.rerunID.
	// An id that is set at creation requests nothing.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ID string `json:"id"`
}

// SessionRetry defines which failed runs are retried.
type SessionRetry struct {
	// limit is how often a run is retried after its runner failed, at most 5. Default: 0.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=5
	Limit int32 `json:"limit"`

	// onDisruption retries a run whose Pod was evicted, preempted or lost, up to five times.
	// These retries do not count towards limit. Default: false.
	// +optional
	OnDisruption bool `json:"onDisruption,omitempty"`
}

// SessionWorkspace is the directory that the agent works in.
type SessionWorkspace struct {
	// persistence of the workspace. Persistent: a PersistentVolumeClaim that all attempts and
	// runs of the session use. Ephemeral: an empty directory for each Pod. Default: Persistent.
	// +optional
	// +kubebuilder:default=Persistent
	Persistence WorkspacePersistence `json:"persistence,omitempty"`

	// size of the workspace, at most limits.maxWorkspaceSize of the SessionRunner. Default: 10Gi, or
	// maxWorkspaceSize if that is less.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!isQuantity(string(self)) || quantity(string(self)).isGreaterThan(quantity('0'))",message="size must be greater than zero"
	Size *resource.Quantity `json:"size,omitempty"`

	// storageClassName of the workspace. Only the SessionRunner's is allowed. Default: the
	// SessionRunner's.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	StorageClassName *string `json:"storageClassName,omitempty"`

	// retain keeps a persistent workspace when the session is deleted. Default: false.
	// +optional
	Retain bool `json:"retain,omitempty"`

	// onLost is what a run does whose persistent workspace was deleted or replaced after an earlier
	// attempt used it. Fail: the run fails with the reason WorkspaceLost. StartEmpty: it starts with an
	// empty workspace. Default: Fail.
	// +optional
	// +kubebuilder:default=Fail
	OnLost WorkspaceLossPolicy `json:"onLost,omitempty"`
}

// SessionReference is a reference to a session in the same namespace.
type SessionReference struct {
	// name of the AgenticSession.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=52
	Name string `json:"name"`
}

// ActiveWorkflow is a git repository with instructions for the agent.
type ActiveWorkflow struct {
	// gitUrl of the repository, as https://, ssh:// or git@host:path, without credentials.
	// +required
	GitURL GitURL `json:"gitUrl"`

	// branch to check out. Default: main.
	// +optional
	// +kubebuilder:default=main
	Branch GitBranch `json:"branch,omitempty"`

	// path of the instructions in the repository.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('/') && !self.matches('(^|/)[.][.](/|$)')",message="path must stay within the repository"
	Path string `json:"path,omitempty"`
}

// MCPServers are tool servers that speak the Model Context Protocol.
type MCPServers struct {
	// custom servers by name, at most 32, in a format that the runner defines.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Custom map[string]apiextensionsv1.JSON `json:"custom,omitempty"`

	// disabled are the names of the runner's built-in servers to disable, at most 64.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	Disabled []string `json:"disabled,omitempty"`
}

// WorkspacePersistence is whether a workspace is kept after its Pod ends.
// +kubebuilder:validation:Enum=Persistent;Ephemeral
type WorkspacePersistence string

// The kinds of persistence.
const (
	WorkspacePersistent WorkspacePersistence = "Persistent"
	WorkspaceEphemeral  WorkspacePersistence = "Ephemeral"
)

// WorkspaceLossPolicy is what a run does whose workspace was lost.
// +kubebuilder:validation:Enum=Fail;StartEmpty
type WorkspaceLossPolicy string

// The policies for a lost workspace.
const (
	WorkspaceLossFail       WorkspaceLossPolicy = "Fail"
	WorkspaceLossStartEmpty WorkspaceLossPolicy = "StartEmpty"
)
