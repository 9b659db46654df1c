package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// JobReportName is the name of the one JobReport that a namespace has.
const JobReportName = "jobs"

// JobReport says which Jobs of its namespace are stale, and why. It has no spec: the
// operator writes it, for the namespaces it is told to.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=jr,categories=yardmaster
// +kubebuilder:printcolumn:name="Healthy",type=integer,JSONPath=`.status.summary.healthy`
// +kubebuilder:printcolumn:name="Suspicious",type=integer,JSONPath=`.status.summary.suspicious`
// +kubebuilder:printcolumn:name="Zombie",type=integer,JSONPath=`.status.summary.zombie`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="ReportReady")].status`
// +kubebuilder:printcolumn:name="Last Scan",type=date,JSONPath=`.status.lastScanTime`
type JobReport struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// status is what the last scans found.
	// +optional
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

// JobReportStatus is what the last scans found. It is at most 64 KiB.
type JobReportStatus struct {
	// conditions: ReportReady, ScanFailed, Truncated, and OpenReportsReady where the
	// findings are to be in an OpenReports Report too.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// summary counts all Jobs, also those that findings leave out.
	// +optional
	// +kubebuilder:default={}
	Summary JobSummary `json:"summary,omitempty"`

	// findings about the Jobs that matter most, by name.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=500
	Findings []JobFinding `json:"findings,omitempty"`

	// omitted is how many Jobs are not healthy and not among the findings.
	// +optional
	// +kubebuilder:default=0
	Omitted int32 `json:"omitted"`

	// contentHash is a hash of summary, findings and omitted.
	// +optional
	ContentHash string `json:"contentHash,omitempty"`

	// lastScanTime is when the scan began that this report was last written after. A
	// scan that finds nothing new is written once an hour only.
	// +optional
	LastScanTime *metav1.Time `json:"lastScanTime,omitempty"`

	// scanDuration is how long that scan took.
	// +optional
	ScanDuration *metav1.Duration `json:"scanDuration,omitempty"`
}

// JobSummary counts Jobs.
type JobSummary struct {
	// total number of Jobs.
	// +optional
	// +kubebuilder:default=0
	Total int32 `json:"total"`
	// healthy Jobs: those that no rule has anything to say of.
	// +optional
	// +kubebuilder:default=0
	Healthy int32 `json:"healthy"`
	// suspicious Jobs: those that somebody should look at.
	// +optional
	// +kubebuilder:default=0
	Suspicious int32 `json:"suspicious"`
	// zombie Jobs: those that will not come to life again, or are long since of no use.
	// +optional
	// +kubebuilder:default=0
	Zombie int32 `json:"zombie"`
	// byReason counts the Jobs that are not healthy by their finding's reason.
	// +optional
	ByReason map[string]int32 `json:"byReason,omitempty"`
}

// JobFinding is what was found of one Job.
type JobFinding struct {
	// name of the Job.
	Name string `json:"name"`
	// uid of the Job.
	// +optional
	UID types.UID `json:"uid,omitempty"`
	// category of the Job.
	Category JobCategory `json:"category"`
	// severity says how much it matters.
	Severity JobSeverity `json:"severity"`
	// reason is the rule that the Job meets, in CamelCase.
	Reason string `json:"reason"`
	// cause is what the Job itself names as the cause, where it names one: the reason of
	// its condition, a finalizer, another controller.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Cause string `json:"cause,omitempty"`
	// since when that is so, where the Job says it.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// message for people, at most 256 bytes.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`
}

// JobCategory is what a Job with a finding is.
// +kubebuilder:validation:Enum=Suspicious;Zombie
type JobCategory string

// The categories of findings.
const (
	JobSuspicious JobCategory = "Suspicious"
	JobZombie     JobCategory = "Zombie"
)

// JobSeverity says how much a finding matters.
// +kubebuilder:validation:Enum=Low;Medium;High
type JobSeverity string

// The severities of findings.
const (
	SeverityLow    JobSeverity = "Low"
	SeverityMedium JobSeverity = "Medium"
	SeverityHigh   JobSeverity = "High"
)

// Condition types of a JobReport.
const (
	// ConditionReportReady is True when the report is that of the last scan.
	ConditionReportReady = "ReportReady"
	// ConditionScanFailed is True when the last scan failed. The report is then that of
	// the last scan that did not.
	ConditionScanFailed = "ScanFailed"
	// ConditionTruncated is True when some findings were left out.
	ConditionTruncated = "Truncated"
	// ConditionOpenReportsReady is True when the findings are in an OpenReports Report too.
	// A JobReport that is not asked for a Report has none.
	ConditionOpenReportsReady = "OpenReportsReady"
)

// Reasons of a JobReport's conditions.
const (
	ReasonScanned    = "Scanned"
	ReasonScanFailed = "ScanFailed"

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
	// Of OpenReportsReady; besides Forbidden, Timeout and NameTaken.
	ReasonWritten     = "Written"
	ReasonCRDMissing  = "CRDMissing"
	ReasonWriteFailed = "WriteFailed"
)

// Reasons of events on a JobReport.
const (
	EventScanFailed    = "ScanFailed"
	EventScanRecovered = "ScanRecovered"
	EventTruncated     = "Truncated"
	EventNotTruncated  = "NotTruncated"

	EventOpenReportsFailed    = "OpenReportsFailed"
	EventOpenReportsRecovered = "OpenReportsRecovered"
)
