package view

// Kind is a kind of object that has pages.
type Kind struct {
	// Path is its part of the URL and the name of its command, such as seq.
	Path string
	// Title is the title of its list, such as Sequences.
	Title string
	// Name is the kind in the API, such as SequentialJob.
	Name string
	// Resource is its plural in the API, such as sequentialjobs.
	Resource string
}

// The kinds, in the order of the navigation.
var (
	Sequences = &Kind{"seq", "Sequences", "SequentialJob", "sequentialjobs"}
	Sessions  = &Kind{"session", "Sessions", "AgenticSession", "agenticsessions"}
	Queues    = &Kind{"queue", "Queues", "Queue", "queues"}
	Pools     = &Kind{"pool", "Pools", "WorkerPool", "workerpools"}
	Schedules = &Kind{"schedule", "Schedules", "Schedule", "schedules"}
)

// Kinds are all kinds.
var Kinds = []*Kind{Sequences, Sessions, Queues, Pools, Schedules}

// KindOf returns the kind with the path, or nil.
func KindOf(path string) *Kind {
	for _, kind := range Kinds {
		if kind.Path == path {
			return kind
		}
	}
	return nil
}
