package broker

// Field is a field of a Queue, or a feature, that something must keep to.
type Field string

// The fields that engines differ in.
const (
	FieldLease       Field = "lease"
	FieldRetry       Field = "retry"
	FieldMaxInFlight Field = "maxInFlight"
	FieldMaxBacklog  Field = "maxBacklog"
	FieldDelayed     Field = "delayed"
	FieldDeadLetter  Field = "deadLetter"
	FieldPaused      Field = "paused"
	FieldPriorities  Field = "priorities"
	FieldRateLimit   Field = "rateLimit"
	FieldMaxAge      Field = "retention.maxAge"
)

// Enforcer is who keeps to a field.
type Enforcer string

// Who keeps to a field.
const (
	// ByBroker: whatever workers do.
	ByBroker Enforcer = "Broker"
	// ByWorker: by workers with this project's runtime.
	ByWorker Enforcer = "Worker"
	// Unsupported: nobody.
	Unsupported Enforcer = "Unsupported"
)

// Enforcement is who keeps to a field, and what is to be known about it.
type Enforcement struct {
	By Enforcer
	// Message for people; may be empty.
	Message string
}

// Capabilities tell who keeps to which field.
type Capabilities map[Field]Enforcement
