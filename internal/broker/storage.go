package broker

// The numbers of replicas of a queue.
const (
	// DefaultReplicas survive the loss of a server.
	DefaultReplicas = 3
	// MaxReplicas is the maximum of all engines.
	MaxReplicas = 5
)

// StorageConfig is how a broker stores a queue.
type StorageConfig struct {
	// Replicas is the number of servers that store each message: 1, 3 or 5. 0: at least DefaultReplicas, or 1 while the broker refuses them.
	Replicas int
	// Type is where a server stores messages. Empty: StorageFile.
	Type StorageType
	// Placement selects the servers. Nil: the placement on the broker does not change.
	Placement *Placement
}

// StorageType is where a server stores messages.
type StorageType string

// The types of storage.
const (
	StorageFile   StorageType = "File"
	StorageMemory StorageType = "Memory"
)

// Placement selects the servers that store a queue: the servers of the cluster that have all tags. A tag that begins with ! excludes
// servers.
type Placement struct {
	Cluster string
	Tags    []string
}

// IsRequired reports whether the number of replicas is configured, rather than a default.
func (s StorageConfig) IsRequired() bool { return s.Replicas != 0 }

// WantedReplicas is the number of replicas that a queue should have.
func (s StorageConfig) WantedReplicas() int {
	if s.IsRequired() {
		return s.Replicas
	}
	return DefaultReplicas
}

// AcceptsReplicas reports whether the number of replicas of a queue need not change.
func (s StorageConfig) AcceptsReplicas(found int) bool {
	return found == s.WantedReplicas() || !s.IsRequired() && found > DefaultReplicas
}

// StorageState is how a broker stores a queue. A queue consists of several streams: the numbers are those of the worst stream.
type StorageState struct {
	// Replicas is the configured number of replicas. 0: unknown.
	Replicas int
	// CurrentReplicas is the number of replicas that are online and have all messages. 0: unknown.
	CurrentReplicas int
	// OfflineReplicas is the number of replicas whose servers are offline.
	OfflineReplicas int
	// Refusal is why the broker refuses the wanted storage; empty if it does not.
	Refusal string
	// RefusesConfig: the refused setting is configured, rather than a default.
	RefusesConfig bool
	// IsMoving: the broker is moving the queue to other servers, and accepts no other change of the replicas.
	IsMoving bool
}

// IsUnfinished reports whether the state changes soon by itself.
func (s *StorageState) IsUnfinished() bool {
	return s != nil && (s.IsMoving || s.CurrentReplicas < s.Replicas)
}
