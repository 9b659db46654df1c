package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// JobReportName is the name of the only JobReport of a namespace.
const JobReportName = "jobs"

// JobReport lists the stale Jobs of its namespace. The operator writes one, named jobs.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=jr,categories=yardmaster
// +kubebuilder:printcolumn:name="Healthy",type=integer,JSONPath=`.status.summary.healthy`
// +kubebuilder:printcolumn:name="Suspicious",type=integer,JSONPath=`.status.summary.suspicious`
// +kubebuilder:printcolumn:name="Zombie",type=integer,JSONPath=`.status.summary.zombie`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Last Scan",type=date,JSONPath=`.status.lastScanTime`
type JobReport struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// status is the result of the last scans.
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	// +structType=atomic
	Status JobReportStatus `json:"status,omitempty"`
}

// JobReportList is a list of JobReports.
//
// +kubebuilder:object:root=true
type JobReportList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []JobReport `json:"items"`
}

// JobReportStatus is the result of the last scans. It has at most 64 KiB.
type JobReportStatus struct {
	ObservedStatus `json:",inline"`

	// summary counts all Jobs.
	// +optional
	// +kubebuilder:default={}
	Summary JobSummary `json:"summary,omitempty"`

	// findings about the most important Jobs, up to the flag --report-top, by name.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=500
	Findings []JobFinding `json:"findings,omitempty"`

	// groups of findings with the same owner and reason, the 20 most important.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Groups []JobFindingGroup `json:"groups,omitempty"`

	// nextSteps is a command for each reason of the findings, which begins the next step for one of
	// the Jobs.
	// +optional
	NextSteps map[string]string `json:"nextSteps,omitempty"`

	// thresholds of the rules that differ from the defaults, by the names of the plugin's flags.
	// +optional
	Thresholds map[string]string `json:"thresholds,omitempty"`

	// lastScanTime is the start of the last recorded scan.
	// +optional
	LastScanTime *metav1.Time `json:"lastScanTime,omitempty"`
}

// JobSummary counts Jobs.
type JobSummary struct {
	// total number of Jobs.
	// +optional
	// +kubebuilder:default=0
	Total int32 `json:"total"`
	// healthy Jobs, which match no rule or are superseded.
	// +optional
	// +kubebuilder:default=0
	Healthy int32 `json:"healthy"`
	// suspicious Jobs, to be examined.
	// +optional
	// +kubebuilder:default=0
	Suspicious int32 `json:"suspicious"`
	// zombie Jobs, which make no progress or are useless.
	// +optional
	// +kubebuilder:default=0
	Zombie int32 `json:"zombie"`
	// ignored Jobs, exempt by an annotation.
	// +optional
	// +kubebuilder:default=0
	Ignored int32 `json:"ignored"`
	// byReason counts unhealthy Jobs by reason.
	// +optional
	ByReason map[string]int32 `json:"byReason,omitempty"`
}

// JobFindingClass is what a finding has in common with others. A group has the highest severity of its findings.
type JobFindingClass struct {
	// owner that the Job states.
	// +optional
	Owner *JobOwner `json:"owner,omitempty"`
	// category of the Job.
	Category JobCategory `json:"category"`
	// severity is Low if the Job only takes up space, High for other zombies, else Medium.
	Severity JobSeverity `json:"severity"`
	// reason is the rule that matches.
	Reason string `json:"reason"`
}

// JobFinding is why a Job is unhealthy.
type JobFinding struct {
	// name of the Job.
	Name string `json:"name"`
	// uid of the Job.
	// +optional
	UID             types.UID `json:"uid,omitempty"`
	JobFindingClass `json:",inline"`
	// cause that the Job states.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Cause string `json:"cause,omitempty"`
	// since is when the age for the rule begins.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// message describes the finding.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`
}

// JobOwner is what created a Job, as far as the Job states it: its controller, or what its labels
// and annotations name.
type JobOwner struct {
	// kind of the owner, such as CronJob.
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`
	// name of the owner.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// JobFindingGroup counts findings.
type JobFindingGroup struct {
	JobFindingClass `json:",inline"`
	// count of the findings.
	// +kubebuilder:validation:Minimum=2
	Count int32 `json:"count"`
	// oldest since of the findings.
	// +optional
	Oldest *metav1.Time `json:"oldest,omitempty"`
	// newest since of the findings.
	// +optional
	Newest *metav1.Time `json:"newest,omitempty"`
}

// JobCategory classifies a Job that is not healthy: somebody should examine a Suspicious Job; a
// Zombie will not make progress without intervention.
// +kubebuilder:validation:Enum=Suspicious;Zombie
type JobCategory string

// The categories of findings.
const (
	JobSuspicious JobCategory = "Suspicious"
	JobZombie     JobCategory = "Zombie"
)

// JobSeverity is the importance of a finding.
// +kubebuilder:validation:Enum=Low;Medium;High
type JobSeverity string

// The severities of findings.
const (
	SeverityLow    JobSeverity = "Low"
	SeverityMedium JobSeverity = "Medium"
	SeverityHigh   JobSeverity = "High"
)

// Reasons of a JobReport's conditions.
const (
	ReasonScanned = "Scanned"

	ReasonForbidden            = "Forbidden"
	ReasonNamespaceNotFound    = "NamespaceNotFound"
	ReasonNamespaceTerminating = "NamespaceTerminating"
	ReasonTimeout              = "Timeout"
	ReasonExpired              = "Expired"
	ReasonPartialList          = "PartialList"
	ReasonListFailed           = "ListFailed"

	ReasonTooManyFindings = "TooManyFindings"
	ReasonTooBig          = "TooBig"
	ReasonAllFindings     = "AllFindings"
	// Reasons of OpenReportsReady, in addition to Forbidden, Timeout and NameTaken.
	ReasonWritten     = "Written"
	ReasonCRDMissing  = "CRDMissing"
	ReasonWriteFailed = "WriteFailed"
)

// Reasons of events about a JobReport.
const (
	EventScanFailed    = "ScanFailed"
	EventScanRecovered = "ScanRecovered"
	EventTruncated     = "Truncated"
	EventNotTruncated  = "NotTruncated"

	EventOpenReportsFailed    = "OpenReportsFailed"
	EventOpenReportsRecovered = "OpenReportsRecovered"
)
