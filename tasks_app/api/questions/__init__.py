"""Operations on questions and on the decisions that answers become."""
