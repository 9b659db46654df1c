package networkcheck

// The ports of the operator's Pods.
const (
	// ControlPort is the port that the NetworkPolicies of sessions allow.
	ControlPort = 9446
	// DeniedPort is the port that they do not allow.
	DeniedPort = 9447
)

// Exit codes of the command, by which the operator recognizes the result.
const (
	ExitNotEnforced = 10
	ExitUnknown     = 11
)

// Result is whether NetworkPolicies are enforced.
type Result int

// Results of a check.
const (
	// Unknown: the control port could not be reached.
	Unknown Result = iota
	// Enforced: at some time, the control port was reached, and the denied port was not.
	Enforced
	// NotEnforced: both ports were reached until the end of the check.
	NotEnforced
)

var resultNames = map[Result]string{Unknown: "Unknown", Enforced: "Enforced", NotEnforced: "NotEnforced"}

// String returns the name of the result.
func (r Result) String() string { return resultNames[r] }

// ParseResult returns the result with this name; Unknown for other names.
func ParseResult(name string) Result {
	for result, text := range resultNames {
		if text == name {
			return result
		}
	}
	return Unknown
}
