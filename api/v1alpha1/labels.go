package v1alpha1

// Prefix is the label and annotation prefix that belongs to the operator. Users
// cannot set keys under it, or under batch.kubernetes.io/, in templates.
const Prefix = "yardmaster.dev/"

// Labels and annotations the operator puts on the objects it creates.
const (
	// LabelManagedBy is the well-known label that names the tool managing an object.
	LabelManagedBy = "app.kubernetes.io/managed-by"
	// ManagedByValue is the value of LabelManagedBy on every object the operator creates.
	ManagedByValue = "yardmaster"

	// LabelSequentialJobUID carries the owner's UID. It narrows what the operator
	// caches; ownership itself is always read from the controller reference.
	LabelSequentialJobUID = Prefix + "sequentialjob-uid"
	// LabelSequentialJob carries the owner's name, cut to the 63 characters of a
	// label value, for people who select by it.
	LabelSequentialJob = Prefix + "sequentialjob"
	// LabelStep carries the name of the step a Job runs.
	LabelStep = Prefix + "step"

	// AnnotationRun carries the number of the run a Job belongs to.
	AnnotationRun = Prefix + "run"
	// AnnotationGeneration, AnnotationSpecHash and AnnotationTemplateHash carry which
	// spec a Job was made from.
	AnnotationGeneration   = Prefix + "generation"
	AnnotationSpecHash     = Prefix + "spec-hash"
	AnnotationTemplateHash = Prefix + "template-hash"
	// AnnotationStepOptions carries the step's options, in JSON, as they were when its
	// Job was made: a later change of the spec does not reach a step that has started.
	AnnotationStepOptions = Prefix + "step-options"
	// AnnotationFirstStep is on a SequentialJob from the moment its first step is begun
	// until nothing of it runs. It records that step, in JSON, in the same write as the
	// finalizer, so that the status can follow later.
	AnnotationFirstStep = Prefix + "first-step"
	// AnnotationSuspended marks a Job that the operator itself suspended. Only such
	// a Job is resumed by it: every other suspension belongs to someone else.
	AnnotationSuspended = Prefix + "suspended"
)
