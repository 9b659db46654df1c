package v1alpha1

// Prefix is the prefix of the operator's labels, annotations and finalizers. Users cannot set
// labels or annotations with this prefix, or with batch.kubernetes.io/, in templates.
const Prefix = "yardmaster.dev/"

// Labels and annotations of the objects that the operator creates.
const (
	// LabelManagedBy is the well-known label that names the tool managing an object.
	LabelManagedBy = "app.kubernetes.io/managed-by"
	// ManagedByValue is the value of LabelManagedBy on every object the operator creates.
	ManagedByValue = "yardmaster"

	// LabelSequentialJobUID is the owner's UID. It limits what the operator caches; ownership is
	// always determined by the controller reference.
	LabelSequentialJobUID = Prefix + "sequentialjob-uid"
	// LabelSequentialJob is the owner's name, truncated to the 63 characters of a label value,
	// for label selectors.
	LabelSequentialJob = Prefix + "sequentialjob"
	// LabelBroker with the value "true" on a Secret allows the operator to use its content for
	// brokers and backlog sources.
	LabelBroker = Prefix + "broker"
	// LabelStep is the name of the step that a Job runs.
	LabelStep = Prefix + "step"

	// LabelArchive with the value "true" is on the Job that archives the logs of a run, and on its Pods.
	LabelArchive = Prefix + "archive"

	// AnnotationRun is the number of the run that a Job belongs to.
	AnnotationRun = Prefix + "run"
	// AnnotationGeneration and AnnotationSpecHash identify the spec that a Job was created from.
	AnnotationGeneration = Prefix + "generation"
	AnnotationSpecHash   = Prefix + "spec-hash"
	// AnnotationContentHash is a hash of a step's Job, without its generation: another one means that the spec was changed since.
	AnnotationContentHash = Prefix + "content-hash"
	// AnnotationStepOptions is the JSON of the step's options at the time its Job was created: a
	// later change of the spec does not affect a step that has started.
	AnnotationStepOptions = Prefix + "step-options"
	// AnnotationApproval on a SequentialJob approves the start of a step with requireApproval. Its value is the JSON of
	// status.approval, and of the parameters that the approval sets. AnnotationApprovedBy is the name of the user. An admission
	// policy lets only users with the verb approve set either, and only to their own name.
	AnnotationApproval   = Prefix + "approval"
	AnnotationApprovedBy = Prefix + "approved-by"
	// LabelSchedule is the name of the Schedule that started a SequentialJob or AgenticSession, for label
	// selectors. Ownership is determined by the controller reference.
	LabelSchedule = Prefix + "schedule"
	// AnnotationScheduledTime is the time of a run of a Schedule, in RFC 3339 and UTC.
	AnnotationScheduledTime = Prefix + "scheduled-time"
	// AnnotationRerunID is the ID of the request in a Schedule to which a run belongs. Runs of the timetable do not
	// have it.
	AnnotationRerunID = Prefix + "rerun-id"
	// AnnotationSuspended marks a Job that the operator suspended. The operator resumes only
	// such Jobs.
	AnnotationSuspended = Prefix + "suspended"
)

// Labels and annotations by which a Job changes how JobReports treat it.
const (
	// LabelReportSeries names a series of Jobs that do the same thing: a later success of one makes the failures of
	// the others irrelevant.
	LabelReportSeries = Prefix + "report-series"
	// AnnotationReportIgnore with the value "true" exempts the Job from all rules.
	AnnotationReportIgnore = Prefix + "report-ignore"
	// AnnotationReportRunningTooLong is the time that the Job may run, such as 12h or 7d. It
	// replaces the thresholds of the rule RunningTooLong.
	AnnotationReportRunningTooLong = Prefix + "report-running-too-long"
)
