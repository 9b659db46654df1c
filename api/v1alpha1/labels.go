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

	// AnnotationRun is the number of the run that a Job belongs to.
	AnnotationRun = Prefix + "run"
	// AnnotationGeneration, AnnotationSpecHash and AnnotationTemplateHash identify the spec that
	// a Job was created from.
	AnnotationGeneration   = Prefix + "generation"
	AnnotationSpecHash     = Prefix + "spec-hash"
	AnnotationTemplateHash = Prefix + "template-hash"
	// AnnotationStepOptions is the JSON of the step's options at the time its Job was created: a
	// later change of the spec does not affect a step that has started.
	AnnotationStepOptions = Prefix + "step-options"
	// AnnotationSuspended marks a Job that the operator suspended. The operator resumes only
	// such Jobs.
	AnnotationSuspended = Prefix + "suspended"
)
