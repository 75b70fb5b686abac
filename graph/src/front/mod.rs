//! Front-ends: from what files hold to graphs.
